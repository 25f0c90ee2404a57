package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPTRepository makes a signed repository, as make apt-repo does, and asks
// apt itself for the package, with nothing of this machine's own sources.
func TestAPTRepository(t *testing.T) {
	need(t, "apt-ftparchive", "apt-get", "apt-cache", "gpg")
	older, newer, other := deb(t, "v1.2.3", native), deb(t, "v1.2.4", native), deb(t, "v1.2.3", map[string]string{"amd64": "arm64", "arm64": "amd64"}[native])
	// gpg's sockets need a short path.
	dir, err := os.MkdirTemp("/tmp", "bigfleet-apt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	key, repo := filepath.Join(dir, "key"), filepath.Join(dir, "repo")
	run(t, exec.Command("sh", "-euc", `
export GNUPGHOME=$1/gnupg
mkdir -m 0700 "$GNUPGHOME"
trap 'gpgconf --kill gpg-agent' EXIT
gpg --batch --quiet --passphrase '' --quick-generate-key 'Test <test@bigfleet.invalid>' ed25519 sign never
gpg --batch --export-secret-keys >"$2"`, "-", dir, key))

	run(t, exec.Command("./apt-repo", repo, key, older, other))
	run(t, exec.Command("./apt-repo", repo, key, newer)) // a later release

	apt := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{
			"-o", "Dir=" + dir + "/apt", "-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User=root",
			"-o", "APT::Update::Error-Mode=any", "-o", "APT::Architecture=" + native,
		}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		return cmd
	}
	for _, folder := range []string{"apt/etc/apt/sources.list.d", "apt/etc/apt/preferences.d", "apt/var/lib/apt/lists/partial", "apt/var/cache/apt/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	source := "deb [signed-by=" + repo + "/bigfleet.asc] file:" + repo + " stable main\n"
	if err := os.WriteFile(filepath.Join(dir, "apt/etc/apt/sources.list.d/bigfleet.list"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, apt("apt-get", "-q", "update"))
	policy := run(t, apt("apt-cache", "policy", "bigfleet-agent"))
	if !strings.Contains(policy, "Candidate: 1.2.4-1") || !strings.Contains(policy, "1.2.3-1 ") {
		t.Errorf("want 1.2.4-1 as the candidate, and 1.2.3-1 too:\n%s", policy)
	}
	cmd := apt("apt-get", "-q", "download", "bigfleet-agent")
	cmd.Dir = dir
	run(t, cmd)

	// What was changed after it was signed is refused.
	index := filepath.Join(repo, "dists/stable/InRelease")
	signed, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(index, []byte(strings.Replace(string(signed), "Origin: BigFleet", "Origin: Mallory", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := apt("apt-get", "-q", "update").CombinedOutput(); err == nil {
		t.Errorf("apt takes a repository that was changed:\n%s", out)
	}
}
