package cloudinit

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The stubs record how they were called; dpkg is locked out once.
const (
	stubDpkg = `#!/bin/sh
case $1 in
--print-architecture) echo "${ARCH:-amd64}"; exit ;;
esac
echo "dpkg $*" >>"$LOG"
case $* in
*--configure\ -a) exit 0 ;;
esac
for last in "$@"; do :; done
if ! [ -e "$LOG.locked" ]; then
  : >"$LOG.locked"
  echo "dpkg: error: dpkg frontend lock was locked by another process" >&2
  exit 2
fi
cp "$last" "$LOG.deb"
`
	stubSystemctl = "#!/bin/sh\necho \"systemctl $*\" >>\"$LOG\"\n"
	stubSync      = "#!/bin/sh\necho sync >>\"$LOG\"\n"
	stubSleep     = "#!/bin/sh\necho \"sleep $*\" >>\"$LOG\"\n"
	stubAPT       = `#!/bin/sh
echo "apt-get $*" >>"$LOG"
[ -z "${SEEN:-}" ] || env | grep -i _proxy= | LC_ALL=C sort >"$SEEN"
if ! [ -e "$LOG.locked" ]; then
  : >"$LOG.locked"
  exit 100
fi
`
)

// firstBoot runs an install script under dash with stubs in front of the
// programs that would change this machine, and returns what they recorded. Its
// environment is that of the agent's unit.
func firstBoot(t *testing.T, p Params, env ...string) (calls, output string, err error) {
	t.Helper()
	for _, name := range []string{"dash", "python3"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(name + " is not installed")
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"dpkg": stubDpkg, "systemctl": stubSystemctl, "sleep": stubSleep, "sync": stubSync, "apt-get": stubAPT} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config, err := p.agentConfig()
	if err != nil {
		t.Fatal(err)
	}
	configPath := filepath.Join(dir, "config.json")
	pending := filepath.Join(dir, "pending")
	text := strings.NewReplacer(ConfigPath, configPath, "/etc/default/bigfleet-agent", filepath.Join(dir, "default"),
		pendingPath, pending, resumePath, filepath.Join(dir, "resume"), "retry 360 ", "retry 3 ").Replace(script(t, p))
	for _, path := range []string{pending, filepath.Join(dir, "resume")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{configPath: config, filepath.Join(dir, "first-boot"): text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(dir, "calls")
	cmd := exec.Command("dash", filepath.Join(dir, "first-boot"))
	cmd.Env = append([]string{"PATH=" + dir + ":/usr/bin:/bin", "LOG=" + record, "TMPDIR=" + dir}, env...)
	out, err := cmd.CombinedOutput()
	recorded, _ := os.ReadFile(record) // none when nothing was called
	// What has the next boot go on is there until all is done, and not longer.
	for _, path := range []string{pending, filepath.Join(dir, "resume")} {
		if _, missing := os.Stat(path); (missing != nil) != (err == nil) {
			t.Errorf("after %v: %s: %v", err, path, missing)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "tmp.*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if strings.Contains(string(out)+string(recorded), p.Token) {
		t.Errorf("the token is in the output or in an argument:\n%s\n%s", out, recorded)
	}
	return strings.ReplaceAll(string(recorded), dir, "DIR"), string(out), err
}

// packageServer serves one package to the machine of p, after the refusals, and
// makes p point to it.
func packageServer(t *testing.T, p *Params, content string, refusals ...int) {
	t.Helper()
	auth, machine, path := "Bearer "+p.Token, p.MachineID, "/v1/packages/agent_1_amd64.deb"
	var mu sync.Mutex
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(refusals) > 0 {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(refusals[0])
			refusals = refusals[1:]
			return
		}
		if r.Header.Get("Authorization") != auth || r.URL.Query().Get("machine_id") != machine {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path != path {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // refused handshakes are expected
	srv.StartTLS()
	t.Cleanup(srv.Close)
	p.Endpoint = srv.URL
	p.CAPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	p.Packages = map[string]Package{"amd64": {"agent_1_amd64.deb", fmt.Sprintf("%x", sha256.Sum256([]byte(content)))}}
}

func TestFirstBootFromChannel(t *testing.T) {
	p := params(t, InstallChannel)
	p.MachineID = "m 1&x=%"
	packageServer(t, &p, "the package", http.StatusServiceUnavailable, http.StatusFound)
	calls, out, err := firstBoot(t, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(calls), "\n")
	want := []string{
		"sync", "sleep 10", "sleep 10",
		"dpkg --force-confdef --force-confold --configure -a", "dpkg --force-confold -i DIR/tmp.", "sleep 10",
		"dpkg --force-confdef --force-confold --configure -a", "dpkg --force-confold -i DIR/tmp.",
		"systemctl enable bigfleet-agent.service", "systemctl --no-block restart bigfleet-agent.service", "sync",
	}
	if len(got) != len(want) {
		t.Fatalf("calls:\n%s\noutput:\n%s", calls, out)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("call %d: %q, want %q", i, got[i], want[i])
		}
	}
}

func TestFirstBootRefuses(t *testing.T) {
	ca := testCA(t)
	tests := []struct {
		name, want string
		env        []string
		spoil      func(p *Params)
	}{
		{"another digest", "SHA-256 of agent_1_amd64.deb is", nil, func(p *Params) {
			p.Packages["amd64"] = Package{p.Packages["amd64"].File, strings.Repeat("0", 64)}
		}},
		{"another CA", "CERTIFICATE_VERIFY_FAILED", nil, func(p *Params) { p.CAPEM = ca }},
		{"another host name", "CERTIFICATE_VERIFY_FAILED", nil, func(p *Params) {
			p.Endpoint = strings.Replace(p.Endpoint, "127.0.0.1", "localhost", 1)
		}},
		{"another token", "the provider answered 401", nil, func(p *Params) { p.Token = "AAAAAAAA" }},
		{"no package for it", "there is no package for riscv64", []string{"ARCH=riscv64"}, func(*Params) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := params(t, InstallChannel)
			packageServer(t, &p, "the package")
			tt.spoil(&p)
			calls, out, err := firstBoot(t, p, tt.env...)
			if err == nil || !strings.Contains(out, tt.want) {
				t.Errorf("%v, want %q in\n%.600s", err, tt.want, out)
			}
			if strings.Contains(calls, "dpkg ") || strings.Contains(calls, "systemctl ") {
				t.Errorf("went on after the fault:\n%s", calls)
			}
		})
	}
}

func TestFirstBootFromAPT(t *testing.T) {
	calls, out, err := firstBoot(t, params(t, InstallAPT))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const ours = "apt-get -o Dir::Etc::sourcelist=" + sourcePath + " -o Dir::Etc::sourceparts=- "
	n := 0
	for line := range strings.Lines(calls) {
		if strings.HasPrefix(line, "apt-get ") {
			n++
			if !strings.HasPrefix(line, ours) {
				t.Errorf("looks at other sources: %s", line)
			}
		}
	}
	if n != 3 || !strings.Contains(calls, "install bigfleet-agent\n") || !strings.Contains(calls, "restart bigfleet-agent.service") {
		t.Errorf("calls:\n%s", calls)
	}
}
