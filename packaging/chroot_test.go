package packaging

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is a small Debian in a folder, with dpkg and without an init.
type root struct {
	dir string
}

// newRoot copies the one that this machine keeps for tests; it is made once.
func newRoot(t *testing.T) *root {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a chroot")
	}
	need(t, "mmdebstrap", "unshare", "cp")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(cache, "bigfleet-tools", "debian-chroot")
	if _, err := os.Stat(kept); err != nil {
		makeRoot(t, kept)
	}
	r := &root{dir: filepath.Join(t.TempDir(), "root")}
	run(t, exec.Command("cp", "--archive", "--reflink=auto", kept, r.dir))
	return r
}

// makeRoot makes one from this machine's own APT sources; only dpkg and what is
// essential are in it.
func makeRoot(t *testing.T, kept string) {
	t.Helper()
	sources := "/etc/apt/sources.list.d/debian.sources"
	if _, err := os.Stat(sources); err != nil {
		sources = "/etc/apt/sources.list"
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(kept), "debian-chroot-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	dir := filepath.Join(scratch, "root")
	run(t, exec.Command("sh", "-euc", `. /etc/os-release; exec mmdebstrap --quiet --mode=root --variant=essential "$VERSION_CODENAME" "$1" "$2"`, "-", dir, sources))
	if err := os.Rename(dir, kept); err != nil {
		if _, err := os.Stat(kept); err != nil { // else another test was faster
			t.Fatal(err)
		}
	}
}

// sh runs a script in the chroot, with namespaces of its own, and returns what
// it printed.
func (r *root) sh(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc="+filepath.Join(r.dir, "proc"),
		"chroot", r.dir, "/bin/sh", "-euc", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	return run(t, cmd)
}

// dpkg runs dpkg and fails when it, or a maintainer script, says more than which
// package it is at.
func (r *root) dpkg(t *testing.T, args ...string) {
	t.Helper()
	for i, arg := range args {
		if body, err := os.ReadFile(arg); err == nil {
			args[i] = "/tmp/" + filepath.Base(arg)
			r.write(t, args[i], string(body), 0o644)
		}
	}
	for line := range strings.Lines(r.sh(t, "exec dpkg "+strings.Join(args, " "))) {
		usual := false
		for _, words := range []string{"Selecting previously", "(Reading database", "Preparing to unpack", "Unpacking", "Setting up", "Removing", "Purging configuration", "dpkg: warning: downgrading"} {
			usual = usual || strings.HasPrefix(line, words)
		}
		if !usual {
			t.Errorf("dpkg %v says: %s", args, line)
		}
	}
}

func (r *root) write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	path = filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func (r *root) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(r.dir, path))
	return err == nil
}

func (r *root) check(t *testing.T, when string, want map[string]bool) {
	t.Helper()
	for path, there := range want {
		if r.exists(path) != there {
			t.Errorf("%s: %s exists: %t", when, path, !there)
		}
	}
}

// found returns all that is left of the package.
func (r *root) found(t *testing.T) string {
	t.Helper()
	return r.sh(t, `find / -xdev -path /proc -prune -o -name '*bigfleet*' ! -path '/tmp/*' -print | sort`)
}

const (
	wants  = "/etc/systemd/system/multi-user.target.wants/bigfleet-agent.service"
	config = "/etc/bigfleet-agent/config.json"
	state  = "/var/lib/bigfleet-agent/journal.json"
)

// TestInChroot installs where no init runs, as image builders do.
func TestInChroot(t *testing.T) {
	older, newer := deb(t, "v1.2.3", native), deb(t, "v1.2.4", native)
	r := newRoot(t)

	r.dpkg(t, "-i", older)
	r.check(t, "installed", map[string]bool{wants: true, "/etc/bigfleet-agent": true, config: false})
	if got := r.sh(t, "bigfleet-agent version"); !strings.HasPrefix(got, "bigfleet-agent v1.2.3 ") {
		t.Errorf("version: %s", got)
	}
	r.dpkg(t, "--purge", "bigfleet-agent")
	if left := r.found(t); left != "" {
		t.Errorf("after a purge:\n%s", left)
	}

	// The first boot writes the configuration before it installs.
	r.write(t, config, `{"token": "canary"}`, 0o600)
	r.dpkg(t, "-i", older)
	r.write(t, state, "{}", 0o600)
	r.write(t, "/run/bigfleet-agent/status.json", "{}", 0o600)
	r.write(t, "/etc/default/bigfleet-agent", "HTTPS_PROXY=http://user:password@proxy\n", 0o600)
	keeps := func(when string) {
		t.Helper()
		body, err := os.ReadFile(filepath.Join(r.dir, config))
		if err != nil || string(body) != `{"token": "canary"}` {
			t.Errorf("%s: configuration %q, %v", when, body, err)
		}
		info, err := os.Stat(filepath.Join(r.dir, config))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: configuration %v, %v", when, info, err)
		}
		r.check(t, when, map[string]bool{state: true})
	}
	keeps("installed over a configuration")
	r.dpkg(t, "-i", newer)
	keeps("upgraded")
	r.dpkg(t, "-i", newer)
	keeps("reinstalled")
	r.dpkg(t, "-i", older)
	keeps("downgraded")
	r.dpkg(t, "--remove", "bigfleet-agent")
	keeps("removed")
	r.check(t, "removed", map[string]bool{"/usr/bin/bigfleet-agent": false, "/usr/lib/bigfleet-agent": false, "/lib/systemd/system/bigfleet-agent.service": false})
	r.dpkg(t, "-i", newer)
	keeps("installed again")
	r.check(t, "installed again", map[string]bool{wants: true})

	// What the administrator has disabled stays so.
	if err := os.Remove(filepath.Join(r.dir, wants)); err != nil {
		t.Fatal(err)
	}
	r.dpkg(t, "-i", older)
	r.check(t, "upgraded while disabled", map[string]bool{wants: false})

	r.dpkg(t, "--purge", "bigfleet-agent")
	if left := r.found(t); left != "" {
		t.Errorf("after a purge:\n%s", left)
	}
}

// stubSystemctl records what changes something, and answers as a manager does
// whose agent is in the state that the file says.
const stubSystemctl = `#!/bin/sh
case "$*" in
*is-enabled*) echo enabled ;;
*is-active*) [ "$(cat /tmp/state)" = active ] ;;
*show*) cat /tmp/state ;;
*preset*) ;; # deb-systemd-helper enables with it
*list-units*) echo 'bigfleet-hook-0a1b.service loaded active running' ;;
*) echo "$*" >>/tmp/calls ;;
esac
`

// TestAskedOfSystemd holds what the scripts ask of a manager that runs. What
// becomes of that is tested on booted machines.
func TestAskedOfSystemd(t *testing.T) {
	older, newer := deb(t, "v1.2.3", native), deb(t, "v1.2.4", native)
	r := newRoot(t)
	r.write(t, "/run/systemd/system/.keep", "", 0o644)
	r.write(t, "/usr/bin/systemctl", stubSystemctl, 0o755)
	const (
		reload  = "--system daemon-reload\n"
		start   = "--quiet --system start bigfleet-agent.service\n"
		restart = "--quiet --system restart bigfleet-agent.service\n"
		stop    = "stop bigfleet-agent.service\n"
		reset   = "reset-failed bigfleet-agent.service\n"
		hook    = "stop bigfleet-hook-0a1b.service\n"
	)
	steps := []struct {
		name, state string
		args        []string
		want        string
	}{
		{"install", "inactive", []string{"-i", older}, reload + start},
		{"upgrade", "active", []string{"-i", newer}, reload + restart},
		{"upgrade of a failed one", "failed", []string{"-i", older}, reload + restart},
		{"upgrade of a stopped one", "inactive", []string{"-i", newer}, reload},
		{"reinstall", "active", []string{"-i", newer}, reload + restart},
		{"remove", "active", []string{"--remove", "bigfleet-agent"}, stop + hook + reload + reset},
		{"install again", "inactive", []string{"-i", newer}, reload + restart},
		{"purge", "active", []string{"--purge", "bigfleet-agent"}, stop + hook + reload + reset},
	}
	try := func(t *testing.T, policy bool) {
		for _, s := range steps {
			r.write(t, "/tmp/state", s.state+"\n", 0o644)
			r.write(t, "/tmp/calls", "", 0o644)
			r.dpkg(t, append([]string{}, s.args...)...)
			calls, err := os.ReadFile(filepath.Join(r.dir, "/tmp/calls"))
			if err != nil {
				t.Fatal(err)
			}
			want := s.want
			if policy {
				// It is about starts: what is removed ends all the same.
				want = strings.NewReplacer(start, "", restart, "").Replace(want)
			}
			// deb-systemd-helper reloads by itself when it has changed links.
			got := strings.ReplaceAll("\n"+string(calls), "\ndaemon-reload\n", "\n")[1:]
			if diff := cmp.Diff(want, strings.ReplaceAll(got, reload+reload, reload)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s.name, diff)
			}
		}
		if left := r.found(t); left != "" {
			t.Errorf("after a purge:\n%s", left)
		}
	}
	t.Run("allowed", func(t *testing.T) { try(t, false) })
	r.write(t, "/usr/sbin/policy-rc.d", fmt.Sprintf("#!/bin/sh\nexit %d\n", 101), 0o755)
	t.Run("forbidden by policy-rc.d", func(t *testing.T) { try(t, true) })
}
