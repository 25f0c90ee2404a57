package lifecycle_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

func TestBlobIsSealedAndErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.must(machine.Configure)
		op := r.record("m1").Op
		if op == nil || len(op.Sealed) == 0 || bytes.Contains(op.Sealed, []byte("join me")) {
			t.Fatalf("the blob is not sealed: %+v", op)
		}
		if rec := r.settle(machine.Configured); rec.Op != nil {
			t.Errorf("the sealed blob outlives its operation")
		}
	})
}

// TestUnsealableBlobWaitsForTheShard restarts without a durable secret: the
// interrupted Configure waits for the shard to send the blob again, and fails
// at its deadline if nobody does.
func TestUnsealableBlobWaitsForTheShard(t *testing.T) {
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *lifecycle.Options) { o.Sealer = nil })
			synctest.Wait()
			r.must(machine.Create)
			r.settle(machine.Idle)
			id := r.must(machine.Configure)
			if op := r.record("m1").Op; op.Sealed != nil {
				t.Error("something was kept without a key")
			}
			r.stop()
			delivered := len(r.hosts.sent())
			r.start()
			time.Sleep(time.Minute)
			if len(r.hosts.sent()) != delivered {
				t.Fatal("a command went out without its blob")
			}
			if !again {
				rec := r.settle(machine.Failed)
				if !strings.Contains(rec.LastError, "timeout") || !strings.Contains(rec.LastError, "deliver") {
					t.Errorf("last_error %q", rec.LastError)
				}
				return
			}
			if got := r.must(machine.Configure); got != id {
				t.Errorf("the replay got operation %s, want %s", got, id)
			}
			r.settle(machine.Configured)
			if cmd := r.hosts.sent()[len(r.hosts.sent())-1]; string(cmd.Blob) != "join me" {
				t.Errorf("blob %q", cmd.Blob)
			}
		})
	}
}

func TestSealer(t *testing.T) {
	a, err := lifecycle.NewSealer(bytes.Repeat([]byte("a"), 32))
	if err != nil {
		t.Fatal(err)
	}
	b, err := lifecycle.NewSealer(bytes.Repeat([]byte("b"), 32))
	if err != nil {
		t.Fatal(err)
	}
	sealed := a.Seal("m1", "op1", []byte("blob"))
	if got, err := a.Open("m1", "op1", sealed); err != nil || string(got) != "blob" {
		t.Errorf("Open: %q, %v", got, err)
	}
	// While the secret is changed, what was sealed under the one before opens too.
	rotated, err := lifecycle.NewSealer(bytes.Repeat([]byte("b"), 32), bytes.Repeat([]byte("a"), 32))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rotated.Open("m1", "op1", sealed); err != nil || string(got) != "blob" {
		t.Errorf("Open with the previous secret: %q, %v", got, err)
	}
	if got, err := b.Open("m1", "op1", rotated.Seal("m1", "op1", []byte("blob"))); err != nil || string(got) != "blob" {
		t.Errorf("it is not sealed under the present secret: %q, %v", got, err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another secret":    func() ([]byte, error) { return b.Open("m1", "op1", sealed) },
		"another machine":   func() ([]byte, error) { return a.Open("m2", "op1", sealed) },
		"another operation": func() ([]byte, error) { return a.Open("m1", "op2", sealed) },
		"damaged":           func() ([]byte, error) { return a.Open("m1", "op1", damaged) },
		"short":             func() ([]byte, error) { return a.Open("m1", "op1", sealed[:5]) },
	} {
		if got, err := open(); err == nil || got != nil {
			t.Errorf("%s: opened as %q", name, got)
		}
	}
}
