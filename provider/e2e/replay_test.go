package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// gate holds hosts' hooks until they are let through. Its blobs suit hosts that
// are processes.
type gate struct{ dir string }

func newGate(t *testing.T) gate {
	t.Helper()
	return gate{t.TempDir()}
}

// blob is a bootstrap blob whose Configure, and the Drain after it, wait at the
// gate.
func (g gate) blob() []byte {
	return fmt.Appendf(nil, `#!/bin/sh
mkdir -p opt/bigfleet
cat >opt/bigfleet/bootstrap <<'EOF'
#!/bin/sh
[ "$1" != drain ] || while [ ! -e '%[1]s/drain' ]; do sleep 0.05; done
EOF
chmod +x opt/bigfleet/bootstrap
while [ ! -e '%[1]s/configure' ]; do sleep 0.05; done
`, g.dir)
}

func (g gate) open(t *testing.T, verb string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, verb), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// refused sends each kind but those that fit, without a token, and expects
// want, and never the code that means a stale token.
func (p *provider) refused(id string, want codes.Code, fits ...string) {
	p.t.Helper()
	before := p.get(id)
	for _, kind := range kinds {
		if strings.Contains(strings.Join(fits, " "), kind) {
			continue
		}
		_, err := p.call(kind, id, token{})
		wantCode(p.t, fmt.Sprintf("%s of %s", kind, before.GetState()), err, want)
	}
	if after := p.get(id); after.GetState() != before.GetState() || after.GetCluster() != before.GetCluster() {
		p.t.Errorf("refused calls moved %v to %v", before, after)
	}
}

// repeats expects a kind of call to answer with the operation and the present
// machine, by any shard and any token, and to start nothing.
func (p *provider) repeats(kind, id, operation string) {
	p.t.Helper()
	now := p.get(id)
	for i, tok := range []token{{}, {"another", time.Now().UnixNano(), 1}, {"a third", 1, time.Now().UnixNano()}} {
		ack, err := p.call(kind, id, tok)
		if err != nil || ack.GetOperationId() != operation {
			p.t.Errorf("retry %d of %s in %s: %v, %v, want operation %s", i, kind, now.GetState(), ack.GetOperationId(), err, operation)
		}
		if ack.GetMachine().GetState() != now.GetState() {
			p.t.Errorf("retry of %s shows %s, want %s", kind, ack.GetMachine().GetState(), now.GetState())
		}
	}
}

// TestReplayAndPosition walks one machine through two lives and tries every
// call in every state, also in those that end by themselves only later.
func TestReplayAndPosition(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	state := filepath.Join(t.TempDir(), "state.db")
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--state=" + state}
	p := startProvider(t, environment(), nil, args...)
	id := p.machines(1)[0]
	seen := map[string]bool{}
	fresh := func(operation string) string {
		t.Helper()
		if operation == "" || seen[operation] {
			t.Errorf("operation id %q was given out before", operation)
		}
		seen[operation] = true
		return operation
	}

	p.refused(id, codes.Internal, "Create")
	create := fresh(p.must("Create", id, token{"s", 1, 1}, unspecified))
	p.repeats("Create", id, create)
	if _, err := p.await(id, idle); err != nil {
		t.Fatal(err)
	}
	p.repeats("Create", id, create)
	p.refused(id, codes.Internal, "Create", "Configure", "Delete") // Drain: never configured

	ack, err := p.Configure(context.Background(), &pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: g.blob()})
	if err != nil {
		t.Fatal(err)
	}
	configure := fresh(ack.GetOperationId())
	p.repeats("Configure", id, configure)
	p.refused(id, codes.Aborted, "Configure")
	other := &pb.ConfigureRequest{MachineId: id, ClusterId: "other", BootstrapBlob: []byte("x")}
	wantCode(t, "Configure of CONFIGURING for another cluster", p.send(other), codes.Internal, `"c"`, `"other"`)
	// A retry's blob must not replace the one under way: a wrong one would let
	// the hook through, and the gate is shut.
	p.repeats("Configure", id, configure)
	if m := p.get(id); m.GetState() != configuring || m.GetCluster() != "c" || m.GetHost().GetRef() == "" {
		t.Errorf("CONFIGURING: %v", m)
	}

	// The same over a restart in the middle of the operation.
	p.kill()
	p = startProvider(t, environment(), nil, args...)
	p.repeats("Configure", id, configure)
	p.refused(id, codes.Aborted, "Configure")
	g.open(t, "configure")
	if _, err := p.await(id, configured); err != nil {
		t.Fatal(err)
	}
	p.repeats("Configure", id, configure)
	p.refused(id, codes.Internal, "Configure", "Drain")
	wantCode(t, "Configure of CONFIGURED for another cluster", p.send(other), codes.Internal)
	if m := p.get(id); m.GetState() != configured || m.GetCluster() != "c" {
		t.Errorf("after a refused Configure: %v", m)
	}

	drain := fresh(p.must("Drain", id, token{}, unspecified))
	p.repeats("Drain", id, drain)
	p.refused(id, codes.Aborted, "Drain")
	if m := p.get(id); m.GetState() != draining || m.GetCluster() != "c" || m.GetHost().GetRef() == "" {
		t.Errorf("DRAINING: %v", m)
	}
	g.open(t, "drain")
	m, err := p.await(id, idle)
	if err != nil || m.GetCluster() != "" || len(m.GetShardMetadata()) > 0 {
		t.Fatalf("drained: %v, %v", m, err)
	}
	p.repeats("Drain", id, drain)

	// A second binding of the same host, to the same cluster, is a new operation.
	again := fresh(p.must("Configure", id, token{}, configured))
	p.repeats("Configure", id, again)
	fresh(p.must("Drain", id, token{}, idle))

	del := fresh(p.must("Delete", id, token{}, unspecified))
	p.repeats("Delete", id, del)
	if m, err := p.await(id, speculative); err != nil || m.GetHost() != nil {
		t.Fatalf("deleted: %v, %v", m, err)
	}
	p.repeats("Delete", id, del)
	p.refused(id, codes.Internal, "Create", "Delete")

	// The next life inherits no operation of this one.
	fresh(p.must("Create", id, token{}, idle))
	p.refused(id, codes.Internal, "Create", "Configure", "Delete")
	last := fresh(p.must("Delete", id, token{}, speculative))
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p = startProvider(t, environment(), nil, args...)
	p.repeats("Delete", id, last)
}

// TestFailed lets a Create run into its deadline and looks at what is left: the
// reason, which stays, and another id in the slot.
func TestFailed(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state.db")
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=none", "--seed-count=4", "--create-timeout=8s", "--state=" + state}
	p := startProvider(t, environment(), nil, args...)
	ids := p.machines(4)
	id := ids[0]
	create := p.must("Create", id, token{"s", 1, 1}, unspecified)
	accepted := time.Now()
	p.repeats("Create", id, create)
	p.refused(id, codes.Aborted, "Create")

	// The deadline is absolute: a restart does not start it again.
	time.Sleep(time.Until(accepted.Add(7 * time.Second)))
	p.kill()
	p = startProvider(t, environment(), nil, args...)
	restarted := time.Now()
	m, err := p.await(id, failed)
	if err == nil && time.Since(restarted) >= 7*time.Second {
		t.Errorf("FAILED %s after the restart: the deadline began again", time.Since(restarted))
	}
	if m.GetState() != failed || m.GetHost() != nil || m.GetCluster() != "" {
		t.Fatalf("%v, %v, want FAILED without a host", m, err)
	}
	if !regexp.MustCompile(`^Create failed at step "first-contact" after \d+s \(timeout\)`).MatchString(m.GetLastError()) {
		t.Errorf("last_error %q does not name the step and the time", m.GetLastError())
	}
	p.refused(id, codes.Internal)
	if again := p.get(id); again.GetLastError() != m.GetLastError() {
		t.Errorf("last_error went from %q to %q", m.GetLastError(), again.GetLastError())
	}

	successor := ""
	await(t, "another id in the failed machine's slot", func() bool {
		l := p.list().GetMachines()
		for _, m := range l {
			if m.GetState() == speculative && !strings.Contains(strings.Join(ids, " "), m.GetId()) {
				successor = m.GetId()
			}
		}
		return successor != "" && len(l) == 5
	})
	if now := p.get(successor); now.GetInstanceType() != m.GetInstanceType() {
		t.Errorf("the successor is a %s, the failed one was a %s", now.GetInstanceType(), m.GetInstanceType())
	}
	p.kill()
	p = startProvider(t, environment(), nil, args...)
	if again := p.get(id); again.GetState() != failed || again.GetLastError() != m.GetLastError() {
		t.Errorf("after a restart: %v", again)
	}
	if n := len(p.list().GetMachines()); n != 5 {
		t.Errorf("%d machines after a restart, want 5", n)
	}
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is no sign of %s", what)
		}
	}
}
