package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// DebianPackage is what a package for tests holds.
type DebianPackage struct {
	Name, Version string
	Depends       string
	Files         map[string]string // content by absolute path; scripts begin with #!
	Copies        map[string]string // a file of this machine by absolute path
	Scripts       map[string]string // maintainer scripts by name
}

// BuildPackage builds a .deb into a folder and returns its path.
func BuildPackage(t *testing.T, dir string, p DebianPackage) string {
	t.Helper()
	tree := t.TempDir()
	control := "Package: " + p.Name + "\nVersion: " + p.Version + "\nArchitecture: amd64\nMaintainer: tests <tests@example.org>\n"
	if p.Depends != "" {
		control += "Depends: " + p.Depends + "\n"
	}
	WriteFile(t, filepath.Join(tree, "DEBIAN/control"), control+"Description: of the host tests\n", 0o644)
	for name, script := range p.Scripts {
		WriteFile(t, filepath.Join(tree, "DEBIAN", name), script, 0o755)
	}
	for path, content := range p.Files {
		WriteFile(t, filepath.Join(tree, path), content, modeOf(content))
	}
	for path, source := range p.Copies {
		content, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		WriteFile(t, filepath.Join(tree, path), string(content), modeOf(string(content)))
	}
	out := filepath.Join(dir, p.Name+"_"+p.Version+"_amd64.deb")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Fast rather than small: it is unpacked once.
	cmd := exec.Command("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, text)
	}
	return out
}

func modeOf(content string) os.FileMode {
	if strings.HasPrefix(content, "#!") || strings.HasPrefix(content, "\x7fELF") {
		return 0o755
	}
	return 0o644
}
