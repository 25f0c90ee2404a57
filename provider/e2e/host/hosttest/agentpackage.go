package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// packagesMu guards packages: the agent's package by version, built once.
var (
	packagesMu sync.Mutex
	packages   = map[string][]byte{}
)

// AgentPackage builds the agent's package into a folder, as make deb does, and
// returns its path. The version is a release's: v1.2.3.
func AgentPackage(t *testing.T, dir, version string) string {
	t.Helper()
	packagesMu.Lock()
	defer packagesMu.Unlock()
	if packages[version] == nil {
		packages[version] = buildAgent(t, version)
	}
	path := filepath.Join(dir, "bigfleet-agent_"+strings.TrimPrefix(version, "v")+"-1_amd64.deb")
	WriteFile(t, path, string(packages[version]), 0o644)
	return path
}

func buildAgent(t *testing.T, version string) []byte {
	t.Helper()
	nfpm := os.Getenv("NFPM")
	if nfpm == "" {
		t.Fatal("NFPM is not set; make e2e-host sets it")
	}
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(Checkout(), "packaging", "build"), version, dir, "amd64")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("packaging/build: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		t.Fatalf("packaging/build made %q: %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// ImageLayer is a layer for guests whose image has the package.
func ImageLayer(t *testing.T, deb string) string {
	t.Helper()
	dir := TempDir(t)
	for _, args := range [][]string{
		{"dpkg-deb", "--extract", deb, dir},
		// /lib is a link to /usr/lib, which a folder in an upper layer would hide.
		{"cp", "--archive", filepath.Join(dir, "lib"), filepath.Join(dir, "usr")},
		{"rm", "-r", filepath.Join(dir, "lib")},
		{"chmod", "0755", dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return dir
}
