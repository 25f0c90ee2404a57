package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// capacityctl runs bin/capacityctl to its end.
func capacityctl(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "capacityctl"), args...)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// mustCtl runs bin/capacityctl, which has to succeed and to say something.
func mustCtl(t *testing.T, want string, args ...string) string {
	t.Helper()
	code, out := capacityctl(t, args...)
	if code != 0 || !strings.Contains(out, want) {
		t.Fatalf("capacityctl %s: exit code %d, want 0 and %q:\n%s", strings.Join(args, " "), code, want, out)
	}
	return out
}

// refusedCtl runs bin/capacityctl, which has to fail and to say why.
func refusedCtl(t *testing.T, wants []string, args ...string) {
	t.Helper()
	code, out := capacityctl(t, args...)
	for _, want := range wants {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("capacityctl %s: exit code %d, want 1 and %q:\n%s", strings.Join(args, " "), code, want, out)
		}
	}
}

// TestOperator uses every command on a provider that runs.
func TestOperator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	state, socket := filepath.Join(dir, "state.db"), filepath.Join(dir, "admin.sock")
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--state="+state, "--admin-socket="+socket)
	ids := p.machines(16)
	on := func(args ...string) []string { return append(args, "--insecure", "--addr="+p.addr) }

	mustCtl(t, "16 machines: 16 SPECULATIVE", on("list")...)
	watch := start(t, environment(), "capacityctl", on("watch", "--interval=100ms")...)
	watch.line("watching 16 machines")

	blob := filepath.Join(dir, "blob")
	if err := os.WriteFile(blob, []byte("canary-blob"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := mustCtl(t, "it is SPECULATIVE", on("walk", ids[0], "--cluster=c1", "--blob-file="+blob, "--epoch=10", "--socket="+socket)...)
	for _, want := range []string{"create     IDLE after", "configure  CONFIGURED after", "cluster c1", "drain      IDLE after", "delete     SPECULATIVE after"} {
		if !strings.Contains(out, want) {
			t.Errorf("the walk does not say %q:\n%s", want, out)
		}
	}
	watch.line(ids[0] + "  .*-> SPECULATIVE")
	refusedCtl(t, []string{"FAILED_PRECONDITION", "epoch 10, sequence 4", "--epoch"}, on("create", ids[0], "--epoch=10")...)
	refusedCtl(t, []string{"NOT_FOUND", "capacityctl list"}, on("create", "nobody")...)
	mustCtl(t, "IDLE after", on("create", ids[0], "--wait", "--socket="+socket)...)
	mustCtl(t, "no operation is under way", on("top", "--socket="+socket)...)
	if got := mustCtl(t, ids[0], "__complete", "delete", "--insecure", "--addr="+p.addr, ""); strings.Contains(got, ids[1]) {
		t.Errorf("delete is completed by machines that are not IDLE:\n%s", got)
	}
	var l pb.MachineList
	if err := protojson.Unmarshal([]byte(mustCtl(t, "", on("list", "--state=idle", "-o=json")...)), &l); err != nil || len(l.GetMachines()) != 1 || l.GetMachines()[0].GetId() != ids[0] {
		t.Errorf("list as JSON: %v, %v", &l, err)
	}
	mustCtl(t, "fr-par-1/", on("get", ids[0])...)

	// Backups, while machines come and go.
	done := make(chan error, 1)
	go func() {
		for _, id := range ids[1:] {
			if err := wholeLife(p, id); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var last string
	for i, busy := 0, true; busy; i++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			busy = false
		default:
		}
		last = filepath.Join(dir, fmt.Sprint("copy", i))
		mustCtl(t, "16 machines", "state", "backup", "--socket="+socket, last)
		mustCtl(t, "is whole", "state", "check", last)
	}
	mustCtl(t, "16 machines: 15 SPECULATIVE, 1 IDLE", "state", "inspect", last)
	refusedCtl(t, []string{"locked by another process", fmt.Sprintf("pid %d (scaleway)", p.cmd.Process.Pid)}, "state", "inspect", state)
	refusedCtl(t, []string{"locked by another process", "--socket"}, "state", "backup", state, filepath.Join(dir, "x"))
	refusedCtl(t, []string{"locked by another process"}, "state", "restore", last, state, "--force")
	if os.Geteuid() == 0 {
		strangerIsRefused(t, socket)
	}

	if err := watch.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := watch.exit(10 * time.Second); code != 0 {
		t.Errorf("an interrupted watch ends with %d", code)
	}
	if code := p.terminate(); code != 0 {
		t.Errorf("the provider ends with %d", code)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the admin socket outlives the provider: %v", err)
	}
	refusedCtl(t, []string{"Is the provider running"}, on("list")...)
	refusedCtl(t, []string{"is the provider running, with --admin-socket"}, "state", "backup", "--socket="+socket, filepath.Join(dir, "y"))
	mustCtl(t, "16 machines", "state", "backup", state, filepath.Join(dir, "last"))
	var record struct{ State, ID string }
	if err := json.Unmarshal([]byte(mustCtl(t, "", "state", "inspect", filepath.Join(dir, "last"), "--machine="+ids[0])), &record); err != nil || record.State != "IDLE" || record.ID != ids[0] {
		t.Errorf("got %+v, %v", record, err)
	}
}

// strangerIsRefused opens the socket's mode for everybody and comes as nobody:
// the provider must look at who it is.
func strangerIsRefused(t *testing.T, socket string) {
	t.Helper()
	shared := t.TempDir()
	program := filepath.Join(shared, "capacityctl")
	content, err := os.ReadFile(filepath.Join(bin, "capacityctl"))
	errs := []error{err, os.WriteFile(program, content, 0o755), os.Chmod(shared, 0o777), os.Chmod(socket, 0o666)}
	for _, dir := range []string{filepath.Dir(shared), filepath.Dir(socket), filepath.Dir(filepath.Dir(socket))} {
		errs = append(errs, os.Chmod(dir, 0o711)) // a way in
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "state", "backup", "--socket="+socket, filepath.Join(shared, "stolen"))
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "403 Forbidden") || !strings.Contains(string(out), "only root") {
		t.Errorf("a stranger on the admin socket: %v\n%s", err, out)
	}
}

// TestRestoreKeepsServers goes back to a state of before most machines were
// made, bound and freed, on a cloud that lives on: no server may be lost, and
// none that is bound may be listed as free.
func TestRestoreKeepsServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001", "--hosts=inproc")
	env := environment(
		"SCW_API_URL="+cloud.line(`SCW_API_URL=(\S+)`)[1], "SCW_ACCESS_KEY="+cloud.line(`SCW_ACCESS_KEY=(\S+)`)[1],
		"SCW_SECRET_KEY="+cloud.line(`SCW_SECRET_KEY=(\S+)`)[1], "SCW_DEFAULT_PROJECT_ID="+cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1],
		"BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
	)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the channel's port: hosts remember it
	if err != nil {
		t.Fatal(err)
	}
	channel := ln.Addr().String()
	ln.Close()
	ca := newAuthority(t)
	cert, key := ca.pair("channel", nil)
	state, socket := filepath.Join(dir, "state.db"), filepath.Join(dir, "admin.sock")
	args := []string{
		"--provider=certify", "--seed-count=6", "--state=" + state, "--admin-socket=" + socket, "--reconcile-interval=1s", "--agent-install=image",
		"--bootstrap-addr=" + channel, "--bootstrap-endpoint=https://" + channel, "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key, "--bootstrap-ca=" + ca.pem,
	}
	p := startProvider(t, env, nil, args...)
	ids := p.machines(6)
	free, bound, moved, making, later := ids[0], ids[1], ids[2], ids[3], ids[4]
	configure := func(id, cluster string) {
		t.Helper()
		if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: cluster, BootstrapBlob: []byte("blob"), ShardMetadata: map[string]string{"k": "v"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.await(id, configured); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{free, bound, moved} {
		p.must("Create", id, token{}, idle)
	}
	configure(bound, "c1")
	configure(moved, "c1")
	p.must("Create", making, token{}, unspecified)
	copied := filepath.Join(dir, "copy")
	mustCtl(t, "6 machines", "state", "backup", "--socket="+socket, copied)
	_, inspected := capacityctl(t, "state", "inspect", copied)

	// What the copy does not know.
	cursor := p.list().GetRevision()
	if _, err := p.await(making, idle); err != nil {
		t.Fatal(err)
	}
	configure(making, "c2")
	configure(free, "c2")
	p.must("Drain", moved, token{}, idle)
	configure(moved, "c3")
	p.must("Create", later, token{}, idle)
	want := map[string]*pb.Machine{}
	for _, id := range ids {
		want[id] = p.get(id)
	}
	p.terminate()

	out := mustCtl(t, state+".replaced-", "state", "restore", copied, state, "--force")
	if strings.Contains(inspected, "OPERATION") != strings.Contains(out, "operations dropped: 1") {
		t.Errorf("the copy:\n%s\nits restore:\n%s", inspected, out)
	}
	p = startProvider(t, env, nil, args...)
	p.line("restored copy")
	if l := p.page(nil, 0, cursor); len(l.GetMachines()) != 6 {
		t.Errorf("a cursor of the lineage before gives %d machines, want all 6", len(l.GetMachines()))
	}
	for _, id := range ids {
		got := p.get(id)
		if got.GetState() != want[id].GetState() || got.GetCluster() != want[id].GetCluster() || got.GetHost().GetRef() != want[id].GetHost().GetRef() {
			t.Errorf("%s is %s on %q for %q, and in truth %s on %q for %q", id, got.GetState(), got.GetHost().GetRef(), got.GetCluster(),
				want[id].GetState(), want[id].GetHost().GetRef(), want[id].GetCluster())
		}
	}
	if got := p.get(bound).GetShardMetadata()["k"]; got != "v" {
		t.Errorf("the metadata of a binding that the copy knows: %q", got)
	}
	// Several passes later, all of it is still there and of use.
	for _, id := range []string{free, making} {
		p.must("Drain", id, token{}, idle)
	}
	p.must("Delete", later, token{}, speculative)
	if n := strings.Count(p.text(), "removing a server"); n > 0 {
		t.Errorf("%d servers were removed for lack of a record", n)
	}
}

// wholeLife walks a machine through every state and back to SPECULATIVE.
func wholeLife(p *provider, id string) error {
	for i, end := range []pb.MachineState{idle, configured, idle, speculative} {
		if _, err := p.call(kinds[i], id, token{"busy", 1, int64(i)}); err != nil {
			return fmt.Errorf("%s of %s: %w", kinds[i], id, err)
		}
		if _, err := p.await(id, end); err != nil {
			return err
		}
	}
	return nil
}
