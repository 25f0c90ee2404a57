package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/fakecloud"
)

// TestLeftovers: bin/fakecloud boots a server, is killed, and nothing of the
// guest lives on; the next one removes the names. It runs before the parallel
// tests, which would take the names that it lets go.
func TestLeftovers(t *testing.T) {
	hosttest.Require(t)
	first := startFakecloud(t)
	bootServer(t, first.api)
	hosttest.Await(t, time.Minute, "a guest boots", func() bool {
		return regexp.MustCompile(`msg="the guest boots".*pid=\d+`).MatchString(first.log.String())
	})
	if left := named(t, first.network); len(left) < 3 {
		t.Errorf("a bridge, a namespace and cgroups are named %s: %q", first.network, left)
	}
	pid := regexp.MustCompile(`msg="the guest boots".*pid=(\d+)`).FindStringSubmatch(first.log.String())[1]
	hosttest.Await(t, time.Minute, "the guest is up", func() bool {
		return exec.CommandContext(t.Context(), "nsenter", "--target", pid, "--all", "systemctl", "is-active", "--quiet", "multi-user.target").Run() == nil
	})
	first.end(t)
	hosttest.Await(t, 10*time.Second, "the guest is gone", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return err != nil
	})

	second := startFakecloud(t)
	// The second may have a bridge of the same name, but no guest.
	if left := named(t, first.network+"-"); len(left) > 0 {
		t.Errorf("left by the first: %q", left)
	}
	if err := second.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
	if second.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("it ended with %s:\n%s", second.cmd.ProcessState, second.log)
	}
	if left := named(t, second.network); len(left) > 0 {
		t.Errorf("left by the second, which was asked to stop: %q", left)
	}
}

// fakeProgram is a running bin/fakecloud.
type fakeProgram struct {
	cmd          *exec.Cmd
	log          *hosttest.Log
	done         chan struct{}
	api, network string
}

func startFakecloud(t *testing.T) *fakeProgram {
	t.Helper()
	disks := hosttest.TempDir(t)
	f := &fakeProgram{log: &hosttest.Log{}, done: make(chan struct{})}
	f.cmd = exec.Command(hosttest.Built(t, "fakecloud"), "--addr=127.0.0.1:0", "--scale=0.02", "--hosts=nspawn",
		"--hosts-dir="+disks, "--debian-root="+os.Getenv(hosttest.RootVariable))
	f.cmd.Stdout, f.cmd.Stderr = f.log, f.log
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		_ = f.cmd.Wait() // its exit code is in ProcessState
	}()
	t.Cleanup(func() { f.end(t) })
	hosttest.Await(t, 30*time.Second, "fakecloud serves", func() bool {
		select {
		case <-f.done:
			t.Fatalf("fakecloud ended (%s):\n%s", f.cmd.ProcessState, f.log)
		default:
		}
		return strings.Contains(f.log.String(), "SCW_DEFAULT_ZONE")
	})
	f.api = regexp.MustCompile(`SCW_API_URL=(\S+)`).FindStringSubmatch(f.log.String())[1]
	third := regexp.MustCompile(`at 10\.213\.(\d+)\.1 `).FindStringSubmatch(f.log.String())[1]
	f.network = fmt.Sprintf("bfn%02s", third)
	return f
}

// end kills the program.
func (f *fakeProgram) end(t *testing.T) {
	t.Helper()
	_ = f.cmd.Process.Kill() // it may have ended by itself
	<-f.done
}

// bootServer orders a server and powers it on. It returns its id.
func bootServer(t *testing.T, api string) string {
	t.Helper()
	servers := api + "/instance/v1/zones/fr-par-1/servers"
	var made struct{ Server struct{ ID string } }
	post(t, servers, map[string]any{
		"name": "left", "commercial_type": "DEV1-S", "image": "debian_bookworm", "project": fakecloud.DefaultProjectID, "dynamic_ip_required": true,
	}, &made)
	post(t, servers+"/"+made.Server.ID+"/action", map[string]any{"action": "poweron"}, nil)
	return made.Server.ID
}

func post(t *testing.T, url string, body map[string]any, out any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", fakecloud.DefaultSecretKey)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("POST %s: %s", url, resp.Status)
	}
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
}

// named lists the devices, network namespaces and cgroups of this machine whose
// names begin so.
func named(t *testing.T, prefix string) []string {
	t.Helper()
	var found []string
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if strings.HasPrefix(link.Name, prefix) {
			found = append(found, link.Name)
		}
	}
	for _, pattern := range []string{"/run/netns/", "/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		paths, err := filepath.Glob(pattern + prefix + "*")
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}
