package scaleway_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// The tags are on servers that outlive the process: they must not change.
func TestTagsGolden(t *testing.T) {
	got := scaleway.Tags{Owner: "scaleway-fr-par-1", Machine: "m,1", Operation: "op=ü", Cluster: "prod eu", Life: "op=ü"}.List()
	want := []string{"bigfleet=scaleway-fr-par-1", "bigfleet-machine=m%2C1", "bigfleet-operation=op%3D%C3%BC", "bigfleet-cluster=prod%20eu", "bigfleet-life=op%3D%C3%BC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

func TestTagsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		want := scaleway.Tags{
			Owner: text.Draw(t, "owner"), Machine: text.Draw(t, "machine"),
			Operation: text.Draw(t, "operation"), Cluster: text.Draw(t, "cluster"), Life: text.Draw(t, "life"),
		}
		list := want.List()
		for _, tag := range list {
			if strings.ContainsAny(tag, ", \t\n\"'\x00") || strings.HasPrefix(tag, "AUTHORIZED_KEY=") {
				t.Fatalf("tag %q", tag)
			}
		}
		// Tags of others, before and after, do not matter.
		mixed := slices.Concat([]string{"team=a", "bigfleet"}, list, []string{"bigfleet-zzz=1"})
		if got := scaleway.ParseTags(mixed); got != want {
			t.Fatalf("round trip of %+v gave %+v", want, got)
		}

		cluster := text.Draw(t, "next cluster")
		next, _ := scaleway.WithCluster(mixed, cluster)
		want.Cluster = cluster
		if got := scaleway.ParseTags(next); got != want {
			t.Fatalf("WithCluster(%q) gave %+v", cluster, got)
		}
		if _, changed := scaleway.WithCluster(next, cluster); changed {
			t.Fatal("the same cluster again is a change")
		}
		if !slices.Contains(next, "team=a") {
			t.Fatal("another's tag was lost")
		}
	})
}

func TestParseTagsByHand(t *testing.T) {
	got := scaleway.ParseTags([]string{"bigfleet=p", "bigfleet=other", "bigfleet-machine=50%", "bigfleet-cluster"})
	if want := (scaleway.Tags{Owner: "p", Machine: "50%"}); got != want {
		t.Errorf("ParseTags = %+v, want %+v", got, want)
	}
}

var hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func TestServerName(t *testing.T) {
	for machine, want := range map[string]string{
		"scaleway-fr-par-1-dev1-s-3f9a1c-0007": "scaleway-fr-par-1-dev1-s-3f9a1c-0007-",
		"Node_A.B-":                            "node-a-b-",
		"---":                                  "bigfleet-",
		"":                                     "bigfleet-",
		"日本":                                   "bigfleet-",
	} {
		if got := scaleway.ServerName(machine, "op"); !strings.HasPrefix(got, want) || len(got) != len(want)+12 {
			t.Errorf("ServerName(%q) = %q, want %q and a hash", machine, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		prefix := strings.Repeat("p", rapid.SampledFrom([]int{0, 1, 40, 63, 200}).Draw(t, "length"))
		a := prefix + rapid.String().Draw(t, "a")
		b := prefix + rapid.String().Filter(func(s string) bool { return prefix+s != a }).Draw(t, "b")
		op := rapid.String().Draw(t, "operation")
		name := scaleway.ServerName(a, op)
		if !hostname.MatchString(name) {
			t.Fatalf("ServerName(%q) = %q is no DNS label", a, name)
		}
		if name != scaleway.ServerName(a, op) {
			t.Fatal("not stable")
		}
		if name == scaleway.ServerName(b, op) || name == scaleway.ServerName(a, op+"x") {
			t.Fatalf("two servers are named %q", name)
		}
	})
}

func TestCheckTag(t *testing.T) {
	for _, tag := range []string{"batch", "team=büro", "a b", strings.Repeat("x", 255)} {
		if err := scaleway.CheckTag(tag); err != nil {
			t.Errorf("CheckTag(%q) = %v", tag, err)
		}
	}
	for tag, want := range map[string]string{
		"":                             "empty",
		" ":                            "empty",
		strings.Repeat("x", 256):       "256 bytes, the limit is 255",
		"AUTHORIZED_KEY=ssh-ed25519_A": "log in as root",
		" authorized_key=x":            "log in as root",
		"a,b":                          "comma",
		"bigfleet=mine":                "this provider's own",
		"Bigfleet-Machine=m":           "this provider's own",
		"a\nb":                         "control character",
	} {
		if err := scaleway.CheckTag(tag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckTag(%q) = %v, want %q", tag, err, want)
		}
	}
}
