package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/shared/command"
)

var _ fakecloud.Hosts = (*Hosts)(nil)

// logBuffer is a log that a test can read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (b *logBuffer) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(b.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in the log:\n%s", text, b.String())
		}
	}
}

var fast = agent.Options{BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, ReadyPause: 10 * time.Millisecond}

func TestInProcess(t *testing.T) {
	c := newChannel(t)
	var log logBuffer
	var calls []string
	h := NewInProcess(InProcessOptions{
		Log: log.logger(), Agent: fast,
		Hook: func(_ context.Context, g fakecloud.Guest, call agent.Call) error {
			calls = append(calls, g.ServerID+" "+string(call.Verb))
			if string(call.Command.Blob) == "fail" {
				return errors.New("as asked")
			}
			return nil
		},
	})
	defer h.Close()

	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: c.userData(t, "m1")})
	c.awaitParked(t, "m1", 1)
	if ack := c.send(t, "m1", command.Configure, "op-1", "join"); !ack.OK {
		t.Errorf("configure: %+v", ack)
	}
	if ack := c.send(t, "m1", command.Drain, "op-2", ""); !ack.OK {
		t.Errorf("drain: %+v", ack)
	}
	if ack := c.send(t, "m1", command.Configure, "op-3", "fail"); ack.OK || !strings.Contains(ack.Error, "as asked") {
		t.Errorf("configure that fails: %+v", ack)
	}
	h.Halt("s1")
	c.awaitParked(t, "m1", 0)

	// A reboot finds the disk, not the user data of the day.
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 2, UserData: []byte("ignored")})
	c.awaitParked(t, "m1", 1)
	if ack := c.send(t, "m1", command.Configure, "op-1", "join"); !ack.OK {
		t.Errorf("configure again: %+v", ack)
	}
	h.Close()
	c.awaitParked(t, "m1", 0)

	want := []string{"s1 configure", "s1 ready", "s1 drain", "s1 configure"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("hook calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"s1.1", "s1.2"}, c.bootsOf("m1")); diff != "" {
		t.Errorf("boot ids (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), testToken) {
		t.Error("the token is in the log")
	}
}

func TestBrokenUserDataRunsNoAgent(t *testing.T) {
	c := newChannel(t)
	var log logBuffer
	h := NewInProcess(InProcessOptions{Log: log.logger(), Agent: fast})
	defer h.Close()
	h.Boot(fakecloud.Guest{ServerID: "s1", UserData: append([]byte("\n"), c.userData(t, "m1")...)})
	log.await(t, `level=WARN msg="no agent will run on this server: look at its user data" server_id=s1`)
	h.Boot(fakecloud.Guest{ServerID: "s2", UserData: c.userData(t, "m2")})
	c.awaitParked(t, "m2", 1)
	h.Close()
	if len(c.bootsOf("m1")) > 0 {
		t.Error("an agent ran without readable user data")
	}
}

func TestBootHaltOrder(t *testing.T) {
	c := newChannel(t)
	h := NewInProcess(InProcessOptions{Agent: fast})
	defer h.Close()
	h.Halt("never booted")
	h.Gone("never booted")
	data := c.userData(t, "m1")
	for i := range 50 {
		h.Boot(fakecloud.Guest{ServerID: "s1", Boot: i + 1, UserData: data})
		h.Halt("s1")
	}
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 51, UserData: data})
	c.awaitParked(t, "m1", 1)
	// A boot without a halt is a reboot: never two agents.
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 52, UserData: data})
	c.await(t, "second boot", func() bool {
		b := c.boots["m1"]
		return b[len(b)-1] == "s1.52" && c.parked["m1"] == 1
	})
	h.Gone("s1")
	c.awaitParked(t, "m1", 0)
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: c.userData(t, "m2")})
	c.awaitParked(t, "m2", 1) // a new disk: the user data counts
	h.Close()
	h.Boot(fakecloud.Guest{ServerID: "s3", Boot: 1, UserData: data})
	h.Close()
	if slices.Contains(c.bootsOf("m1"), "s3.1") {
		t.Error("booted after Close")
	}
}

func TestDelay(t *testing.T) {
	c := newChannel(t)
	delay := 50 * time.Millisecond
	h := NewInProcess(InProcessOptions{Agent: fast, Delay: func(g fakecloud.Guest) time.Duration {
		if g.CommercialType == "slow" {
			return time.Hour
		}
		return delay
	}})
	defer h.Close()
	begun := time.Now()
	h.Boot(fakecloud.Guest{ServerID: "s1", CommercialType: "slow", UserData: c.userData(t, "m1")})
	h.Boot(fakecloud.Guest{ServerID: "s2", UserData: c.userData(t, "m2")})
	c.awaitParked(t, "m2", 1)
	if d := time.Since(begun); d < delay {
		t.Errorf("the agent came after %s, want at least %s", d, delay)
	}
	h.Halt("s1")
	h.Close() // does not wait for the hour
	if len(c.bootsOf("m1")) > 0 {
		t.Error("the slow guest has booted")
	}
}

// TestFleet boots as many hosts as one process has to carry, each on a connection
// of its own, and takes all connections from them once: the last must not wait
// longer for its place the more there are.
func TestFleet(t *testing.T) {
	const fleet = 800
	c := newChannel(t)
	var configured atomic.Int64
	h := NewInProcess(InProcessOptions{Agent: fast, Hook: func(_ context.Context, _ fakecloud.Guest, call agent.Call) error {
		if call.Verb == agent.Configure {
			configured.Add(1)
		}
		return nil
	}})
	defer h.Close()
	for i := range fleet {
		id := fmt.Sprintf("m%d", i)
		h.Boot(fakecloud.Guest{ServerID: id, Boot: 1, UserData: c.userData(t, id)})
	}
	all := func() bool {
		n := 0
		for _, p := range c.parked {
			n += p
		}
		return n == fleet
	}
	begun := time.Now()
	c.await(t, "the fleet", all)
	t.Logf("%d connections after %s", c.connections(), time.Since(begun))
	c.CloseClientConnections()
	c.await(t, "the fleet's loss", func() bool { return !all() })
	c.await(t, "the fleet again", all)
	if ack := c.send(t, "m7", command.Configure, "op", "x"); !ack.OK || configured.Load() != 1 {
		t.Errorf("%+v, %d configured", ack, configured.Load())
	}
	for i := range fleet {
		h.Gone(fmt.Sprintf("m%d", i))
	}
	c.await(t, "that no connection is left", func() bool { return c.open == 0 })
}
