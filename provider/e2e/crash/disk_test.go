package crash

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// bulky is a binding that needs space in the state file.
var bulky = binding{"bulky", "join", map[string]string{"bulk": strings.Repeat("x", 200<<10)}}

// TestFullDisk fills a real, small file system below the state file: what does
// not fit is refused and changes nothing, what was acknowledged survives a kill,
// and once there is space calls are accepted again, without a restart.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	metrics := freePort(t)
	f := &fleet{world: newWorld(t, 6, "--metrics-addr="+metrics)}
	dir := filepath.Dir(f.state())
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no small file system: mount: %v", err)
	}
	t.Cleanup(func() {
		f.stopLast()
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	f.run()
	ids := f.ids()
	for _, id := range ids[:3] {
		f.to(id, create)
	}
	f.to(ids[0], configure)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)

	before := f.list()
	if code, text := readyz(t, metrics); code != http.StatusOK {
		t.Errorf("before a write failed: %d %s", code, text)
	}
	f.refused(ids[1])
	if code, text := readyz(t, metrics); code != http.StatusServiceUnavailable || !strings.Contains(text, "no space left") {
		t.Errorf("while nothing can be written: %d %s", code, text)
	}
	f.same(before)
	f.stopLast()
	f.run() // a full disk is no reason not to start
	f.same(before)
	f.refused(ids[1])
	time.Sleep(3 * time.Second) // it has looked again
	if code, text := readyz(t, metrics); code != http.StatusServiceUnavailable {
		t.Errorf("while nothing can be written: %d %s", code, text)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error { // without a call
		if code, text := readyz(t, metrics); code != http.StatusOK {
			return fmt.Errorf("with space again: %d %s", code, text)
		}
		return nil
	})
	f.sequence++
	if _, err := f.send(configure, ids[1], token{"fleet", 1, f.sequence}, bulky); err != nil {
		t.Fatalf("Configure with space again: %v", err)
	}
	f.await(ids[1], configured)
	f.stopLast()
	f.run()
	m, err := f.get(ids[1])
	if err != nil || len(m.GetShardMetadata()["bulk"]) != 200<<10 || m.GetCluster() != "bulky" {
		t.Errorf("after a restart: %s in %q, %v", m.GetState(), m.GetCluster(), err)
	}
	f.to(ids[2], configure)
}

// readyz is what the provider says of itself.
func readyz(t *testing.T, addr string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// refused wants a call that needs space to be refused for lack of it. Its token
// was not accepted either: the same one is good again later.
func (f *fleet) refused(id string) {
	f.t.Helper()
	_, err := f.send(configure, id, token{"fleet", 1, f.sequence + 1}, bulky)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no space left") {
		f.t.Fatalf("Configure on a full disk: %v, want UNAVAILABLE and why", err)
	}
}

// fill writes until there is no space left.
func fill(t *testing.T, path string) {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for size := 1 << 16; size >= 1; {
		switch _, err := out.Write(make([]byte, size)); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
}

// TestNoSpaceForTransitions lets every write fail for a while, by the limit on
// file sizes, when transitions are under way and a machine has failed: none is
// left without a driver, although the provider is not restarted.
func TestNoSpaceForTransitions(t *testing.T) {
	t.Parallel()
	metrics := freePort(t)
	f := &fleet{world: newWorld(t, 6, "--metrics-addr="+metrics)}
	c := newChurn(f.world) // for its faults
	p := f.run()
	ids := f.ids()
	f.to(ids[0], create)
	f.to(ids[1], create, configure)
	c.scarce.Store(100)
	doomed := ids[2] // its type is not ordered for a while then
	if _, err := f.call(create, doomed); err != nil {
		t.Fatal(err)
	}
	f.await(doomed, failed)
	c.scarce.Store(0)
	for k, id := range map[kind]string{remove: ids[0], drain: ids[1], create: ids[3]} {
		if _, err := f.call(k, id); err != nil {
			t.Fatal(err)
		}
	}

	var old unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: old.Max}, nil); err != nil {
		t.Fatal(err)
	}
	before := f.list()
	// Long enough for every driver to meet it, more than once.
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if _, err := f.call(create, ids[4]); status.Code(err) != codes.Unavailable {
			t.Errorf("Create without space: %v, want UNAVAILABLE", err)
		}
		f.same(before)
		if code, text := readyz(t, metrics); code != http.StatusServiceUnavailable || !strings.Contains(text, "no space left") {
			t.Errorf("while nothing can be written: %d %s", code, text)
		}
	}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &old, nil); err != nil {
		t.Fatal(err)
	}

	for id, want := range map[string]pb.MachineState{ids[0]: speculative, ids[1]: idle, ids[3]: idle, doomed + "-r2": speculative} {
		f.await(id, want)
	}
	eventually(t, settleWithin, func() error { return f.compare(f.list()) })
	if !p.said("state file can be written again") {
		t.Error("no write failed")
	}
}
