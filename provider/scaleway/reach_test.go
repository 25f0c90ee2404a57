package scaleway

import (
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/offering"
)

func TestUnreachable(t *testing.T) {
	private := []string{"6ba7b810-9dad-41d1-80b4-00c04fd430c8"}
	for name, tc := range map[string]struct {
		endpoint string
		noPublic bool
		options  cloud.Options
		want     []string // a part of each warning
	}{
		"name":                          {"https://provider.example:9443", false, cloud.Options{}, nil},
		"public address":                {"https://51.15.0.1:9443", false, cloud.Options{}, nil},
		"public address, private only":  {"https://51.15.0.1:9443", false, cloud.Options{PublicIP: cloud.PublicNone, PrivateNetworks: private}, []string{"virtual CD-ROM"}},
		"nothing at all":                {"https://provider.example", false, cloud.Options{PublicIP: cloud.PublicNone}, []string{"never call home"}},
		"nothing by flag":               {"https://provider.example", true, cloud.Options{}, []string{"never call home"}},
		"flag overruled":                {"https://provider.example", true, cloud.Options{PublicIP: cloud.PublicDynamic}, nil},
		"private address":               {"https://10.0.0.1:9443", false, cloud.Options{}, []string{"private address"}},
		"private address and network":   {"https://10.0.0.1:9443", false, cloud.Options{PrivateNetworks: private}, nil},
		"IPv4 from IPv6":                {"https://51.15.0.1", false, cloud.Options{PublicIP: cloud.PublicIPv6}, []string{"IPv6 only"}},
		"IPv6 from IPv6":                {"https://[2001:bc8::1]", false, cloud.Options{PublicIP: cloud.PublicIPv6}, nil},
		"loopback":                      {"https://127.0.0.1", false, cloud.Options{}, []string{"this host's own"}},
		"cluster name":                  {"https://scaleway.bigfleet.svc:9443", false, cloud.Options{}, []string{"cluster's own DNS"}},
		"cluster name as it is dialled": {"https://scaleway.bigfleet.SVC.:9443", false, cloud.Options{}, []string{"cluster's own DNS"}},
		"short name":                    {"https://provider:9443", false, cloud.Options{}, []string{"cluster's own DNS"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &settings{NoPublicIP: tc.noPublic}
			got := s.unreachable(tc.endpoint, tc.options)
			if len(got) != len(tc.want) {
				t.Fatalf("%q, want %q", got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}

// A warning about many offerings is one line.
func TestReachWarningsAreFew(t *testing.T) {
	s := &settings{NoPublicIP: true}
	got := s.reachWarnings("", make([]offering.Offering, 1000))
	if len(got) != 1 || !strings.HasPrefix(got[0], "offerings[0] (), ") || !strings.Contains(got[0], ", 995 more: ") {
		t.Errorf("%q", got)
	}
}
