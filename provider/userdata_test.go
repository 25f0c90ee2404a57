package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFindPackages(t *testing.T) {
	dir := t.TempDir()
	if _, err := findPackages(dir); err == nil || !strings.Contains(err.Error(), "holds no bigfleet-agent_VERSION_ARCH.deb") {
		t.Errorf("an empty folder: %v", err)
	}
	now := time.Now()
	for name, age := range map[string]time.Duration{
		"bigfleet-agent_1.9.0_amd64.deb":  time.Hour,
		"bigfleet-agent_1.10.0_amd64.deb": time.Minute,
		"bigfleet-agent_1.9.0_arm64.deb":  time.Hour,
		"another_2.0.0_amd64.deb":         0,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	found, err := findPackages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found["amd64"].File != "bigfleet-agent_1.10.0_amd64.deb" || found["arm64"].File != "bigfleet-agent_1.9.0_arm64.deb" {
		t.Errorf("found %v", found)
	}
	if len(found["amd64"].SHA256) != 64 || found["amd64"].SHA256 == found["arm64"].SHA256 {
		t.Errorf("hashes %v", found)
	}
}
