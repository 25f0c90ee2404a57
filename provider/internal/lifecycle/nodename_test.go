package lifecycle_test

import (
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/lifecycle"
)

func TestNodeName(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]string{}
	for _, id := range []string{"a", "m-1", "M-1", "m_1", "m.1", long, long + "b", long + "c", "-x-", "ü", "\x00", strings.Repeat("-", 70)} {
		name := lifecycle.NodeName(id)
		if len(name) > 63 || len(name) == 0 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' || name[len(name)-1] == '-' {
			t.Errorf("%q: %q is no DNS label", id, name)
		}
		if other, dup := seen[name]; dup {
			t.Errorf("%q and %q share the name %q", id, other, name)
		}
		seen[name] = id
		if lifecycle.NodeName(id) != name {
			t.Errorf("%q: not stable", id)
		}
	}
	if got := lifecycle.NodeName("scaleway-dev1-s-0001"); got != "scaleway-dev1-s-0001" {
		t.Errorf("a valid label was changed to %q", got)
	}
}
