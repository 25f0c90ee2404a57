package hosttest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Repository is a signed APT repository that guests reach.
type Repository struct {
	URL string
	Key string // file with the public key
}

// NewRepository serves packages as make apt-repo makes them into a repository.
func (w *World) NewRepository(t *testing.T, debs ...string) Repository {
	t.Helper()
	dir := TempDir(t)
	home := filepath.Join(dir, "gnupg")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	secret, repo := filepath.Join(dir, "secret.asc"), filepath.Join(dir, "repo")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "GNUPGHOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "host tests", "ed25519", "sign", "1d")
	run("gpg", "--batch", "--quiet", "--armor", "--output", secret, "--export-secret-keys")
	run("gpgconf", "--kill", "gpg-agent")
	run(append([]string{filepath.Join(Checkout(), "packaging", "apt-repo"), repo, secret}, debs...)...)
	return Repository{URL: w.Serve(t, http.FileServer(http.Dir(repo))), Key: filepath.Join(repo, "bigfleet.asc")}
}
