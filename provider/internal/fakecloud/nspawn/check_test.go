package nspawn

import (
	"strings"
	"testing"
)

func TestCheckRoot(t *testing.T) {
	if err := CheckRoot(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make debian-root") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestPathsOfADisk(t *testing.T) {
	n := &Network{claim: &claim{n: 1}}
	for _, opts := range []Options{
		{Name: "a", Dir: "/tmp/a,b"},
		{Name: "a", Dir: t.TempDir(), Layers: []string{"/a:b"}},
	} {
		if _, err := n.NewGuest(opts); err == nil || !strings.Contains(err.Error(), "colon, comma or backslash") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
