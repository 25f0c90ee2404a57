package scaleway

import (
	"slices"
	"strings"
	"testing"
)

// FuzzTags: ids of any form come back from the tags that are made of them, and
// no tag is one that cloud-init makes an SSH key of.
func FuzzTags(f *testing.F) {
	f.Add("p", "m-1", "op", "c", "op", "")
	f.Add("a,b", "AUTHORIZED_KEY=ssh-ed25519_x", "%2C%", "é\x00\xff", ",", "=")
	f.Fuzz(func(t *testing.T, owner, machine, operation, cluster, life, spare string) {
		want := Tags{Owner: owner, Machine: machine, Operation: operation, Cluster: cluster, Life: life, Spare: spare, Epoch: cluster}
		list := want.List()
		if got := ParseTags(list); got != want {
			t.Errorf("%+v is read as %+v", want, got)
		}
		foreign := append([]string{cluster, machine, "AUTHORIZED_KEY=" + owner}, list...)
		next, _ := WithCluster(foreign, operation)
		if got := ParseTags(next); operation != "" && got.Cluster != operation && !slices.ContainsFunc(foreign[:3], func(s string) bool { return strings.HasPrefix(s, "bigfleet") }) {
			t.Errorf("bound to %q, read as %q", operation, got.Cluster)
		}
		for _, tag := range list {
			if strings.HasPrefix(strings.ToUpper(tag), "AUTHORIZED_KEY") || strings.Contains(tag, ",") {
				t.Errorf("tag %q", tag)
			}
		}
	})
}
