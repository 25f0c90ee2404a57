package scaleway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/shared/endpoint"
)

// unreachable says what of a server with the options will not be able to reach,
// as far as addresses alone can tell: each is a Create that waits for its
// agent's first contact until its deadline, or a slow boot.
func (s *settings) unreachable(channel string, o cloud.Options) []string {
	public := o.PublicIP
	if public == "" {
		public = cloud.PublicDynamic
		if s.NoPublicIP {
			public = cloud.PublicNone
		}
	}
	private := len(o.PrivateNetworks) > 0
	var words []string
	switch {
	case public == cloud.PublicNone && !private:
		words = append(words, "no public address and no private network: its servers reach neither the metadata service nor the bootstrap channel, and their agents never call home; set private_network_ids or public_ip")
	case public == cloud.PublicNone:
		words = append(words, "no public address: its servers cannot reach the metadata service at their first boot, get their user data from a virtual CD-ROM, and take minutes longer; the private network must lead to the bootstrap channel and to their packages")
	}
	u, err := endpoint.URL(channel, "https")
	if err != nil { // the provider's own check reports it
		return words
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		if clusterName(host) {
			words = append(words, fmt.Sprintf("--bootstrap-endpoint: %s is a name that only a cluster's own DNS knows; servers cannot resolve it unless their private network does", host))
		}
	case addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast():
		words = append(words, fmt.Sprintf("--bootstrap-endpoint: %s is this host's own address; no server reaches it there", host))
	case addr.IsPrivate() && !private:
		words = append(words, fmt.Sprintf("--bootstrap-endpoint: %s is a private address, and there are no private_network_ids to reach it through", host))
	case addr.Is4() && !addr.IsPrivate() && public == cloud.PublicIPv6 && !private:
		words = append(words, fmt.Sprintf("--bootstrap-endpoint: %s is an IPv4 address, and its servers have an IPv6 only", host))
	}
	return words
}

// clusterName tells the names that Kubernetes makes up for its services.
func clusterName(host string) bool {
	return !strings.Contains(host, ".") && host != "localhost" || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".local")
}

// reachWarnings are those of all offerings, each said once with the places that
// it is about.
func (s *settings) reachWarnings(endpoint string, offerings []offering.Offering) []string {
	places := map[string][]string{}
	var order []string
	for i, o := range offerings {
		for _, words := range s.unreachable(endpoint, o.Options) {
			if places[words] == nil {
				order = append(order, words)
			}
			places[words] = append(places[words], place(i, o))
		}
	}
	for i, words := range order {
		at := places[words]
		const shown = 5
		if more := len(at) - shown; more > 0 {
			at = append(slices.Clone(at[:shown]), fmt.Sprintf("%d more", more))
		}
		order[i] = strings.Join(at, ", ") + ": " + words
	}
	return order
}

// place is where an offering stands, for operators.
func place(i int, o offering.Offering) string {
	return fmt.Sprintf("offerings[%d] (%s)", i, o.CommercialType)
}
