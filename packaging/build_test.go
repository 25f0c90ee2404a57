package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// need skips a test where a program that it cannot do without is missing; make
// setup installs all of them.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (make setup)", program)
		}
	}
}

func nfpm(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NFPM")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(home, ".cache", "bigfleet-tools", "nfpm")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("nfpm is not installed (make deb does it, NFPM says where it is)")
	}
	return path
}

// run runs a program and returns what it printed.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

var (
	builtMu sync.Mutex
	built   = map[string]string{} // paths of packages, by version and architecture
	builtIn string                // the folder with all of them
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bigfleet-packaging-")
	if err != nil {
		panic(err)
	}
	builtIn = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// deb returns the package of a version such as v1.2.3, built once.
func deb(t *testing.T, version, arch string) string {
	t.Helper()
	tool := nfpm(t)
	need(t, "dpkg-deb")
	builtMu.Lock()
	defer builtMu.Unlock()
	key := version + " " + arch
	if built[key] == "" {
		built[key] = build(t, ".", tool, version, filepath.Join(builtIn, version, arch), arch)
	}
	return built[key]
}

// build runs the build script in a packaging folder.
func build(t *testing.T, folder, tool, version, out, arch string, env ...string) string {
	t.Helper()
	cmd := exec.Command("./build", version, out, arch)
	cmd.Dir = folder
	cmd.Env = append(append(os.Environ(), "NFPM="+tool, "SOURCE_DATE_EPOCH=1700000000"), env...)
	run(t, cmd)
	found, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages: %v, %v", found, err)
	}
	return found[0]
}

// native is the architecture of this machine, on which programs can be run.
const native = runtime.GOARCH
