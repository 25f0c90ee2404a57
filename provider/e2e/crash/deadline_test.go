package crash

import (
	"strings"
	"testing"
	"time"
)

// TestDeadlineHoldsOverKills: a transition that cannot succeed ends at the
// deadline that it was accepted with, however often the provider was killed
// meanwhile, and nothing of it is left.
func TestDeadlineHoldsOverKills(t *testing.T) {
	t.Parallel()
	const (
		timeout = 6 * time.Second
		killAt  = 4 * time.Second // a deadline that began anew would end timeout later
	)
	f := &fleet{world: newWorld(t, 2, "--create-timeout="+timeout.String(), "--reconnect-window=500ms")}
	f.cut.Store(true) // so no agent is heard from
	p := f.run()
	id := f.ids()[0]
	began := time.Now()
	ack, err := f.call(create, id)
	if err != nil {
		t.Fatal(err)
	}
	for time.Since(began) < killAt {
		p.kill()
		p = f.run()
		again, err := f.call(create, id)
		if err != nil || again.GetOperationId() != ack.GetOperationId() {
			t.Fatalf("Create again: %v, %v, want operation %s", again.GetOperationId(), err, ack.GetOperationId())
		}
	}
	f.await(id, failed)
	if took := time.Since(began); took < timeout || took > timeout+killAt-time.Second/2 {
		t.Errorf("it ended after %s, its timeout is %s", took, timeout)
	}
	m, err := f.get(id)
	if err != nil || !strings.Contains(m.GetLastError(), "deadline") {
		t.Errorf("last_error %q, %v", m.GetLastError(), err)
	}
	f.await(id+"-r2", speculative)
	if err := f.compare(f.list()); err != nil {
		t.Error(err)
	}
}
