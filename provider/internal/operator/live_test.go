package operator

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal/terminaltest"
)

// onTerminal runs a command line on a terminal.
func onTerminal(t *testing.T, args ...string) (term *terminaltest.Terminal, ended <-chan int) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	term = terminaltest.Open(t, 120, 20)
	done := make(chan int, 1)
	go func() { done <- Main("test", args, term.TTY, term.TTY, term.TTY) }()
	return term, done
}

// sees waits until a person would see the text, and not the other any more.
func sees(t *testing.T, term *terminaltest.Terminal, text, not string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(term.String(), text) || not != "" && strings.Contains(term.String(), not); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never showed %q without %q:\n%s", text, not, term)
		}
	}
}

func interrupt(t *testing.T, ended <-chan int) int {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	return <-ended
}

// TestListOnTerminal: the table is drawn again in place, what is under way
// first, with its step and age.
func TestListOnTerminal(t *testing.T) {
	s := &scripted{machines: fleet()}
	socket := operationsSocket(t, runningOperation{MachineID: "c", Step: "boot", Started: time.Now().Add(-90 * time.Second)})
	term, ended := onTerminal(t, "list", "--watch", "--interval=100ms", "--insecure", "--addr="+serve(t, s, nil), "--socket="+socket)
	sees(t, term, "3 machines: 1 IDLE, 1 CONFIGURED, 1 FAILED", "")
	s.edit(func() { s.set(&pb.Machine{Id: "c", State: creating, InstanceType: "GP1-XS"}) })
	sees(t, term, "3 machines: 1 CREATING, 1 CONFIGURED, 1 FAILED", "IDLE")
	lines := strings.Split(term.String(), "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[2], "ID  STATE") || strings.Join(strings.Fields(lines[3])[:3], " ") != "c CREATING boot" || !strings.HasPrefix(strings.Fields(lines[3])[3], "1m3") {
		t.Errorf("the table:\n%s", term)
	}
	s.edit(func() { s.fail = status.Error(codes.Unavailable, "stopping") })
	sees(t, term, "UNAVAILABLE: stopping", "")
	s.edit(func() { s.fail = nil })
	sees(t, term, "1 CREATING", "UNAVAILABLE")
	if code := interrupt(t, ended); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	cursor := "\x1b[?25h"
	for end := time.Now().Add(10 * time.Second); !strings.HasSuffix(term.Raw(), cursor); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cursor stays hidden")
		}
	}
	raw := term.Raw()
	if !strings.Contains(raw, "\x1b[33mCREATING\x1b[0m") || strings.Contains(raw, "\x1b[31mred") {
		t.Errorf("no colour, or a host commands the terminal: %q", raw)
	}
}

// TestListOffTerminal: without a terminal a watch is plain lines, filtered.
func TestListOffTerminal(t *testing.T) {
	s := &scripted{machines: fleet()}
	var out, errs output
	ended := make(chan int, 1)
	addr := serve(t, s, nil)
	go func() {
		ended <- Main("test", []string{"list", "--watch", "--interval=100ms", "--state=idle,configured", "--insecure", "--addr=" + addr}, nil, &out, &errs)
	}()
	await(t, &out, "  b  CONFIGURED")
	await(t, &out, "  c  IDLE")
	await(t, &errs, "watching 2 machines")
	s.edit(func() { s.set(&pb.Machine{Id: "c", State: pb.MachineState_MACHINE_STATE_DELETING}) })
	await(t, &out, "  c  gone from the list\n")
	if code := interrupt(t, ended); code != exitOK || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "FAILED") {
		t.Errorf("exit code %d: %q", code, out.String())
	}
}

// TestProgressOnTerminal: a line for each machine under way, which goes when it
// has ended, and a bar for all.
func TestProgressOnTerminal(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m-1", State: speculative}, {Id: "m-2", State: speculative}}}
	socket := operationsSocket(t, runningOperation{MachineID: "m-1", Step: "first-contact", Deadline: time.Now().Add(10 * time.Minute)})
	term, ended := onTerminal(t, "create", "m-1", "m-2", "nobody", "--wait", "--insecure", "--addr="+serve(t, s, nil), "--socket="+socket)
	sees(t, term, "m-1  create     CREATING  first-contact", "")
	sees(t, term, "deadline in 9m", "")
	sees(t, term, "1/3  1 not done", "")
	s.edit(func() { s.move = settle })
	if code := <-ended; code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	sees(t, term, "3/3  1 not done", "CREATING")
	seen := term.String()
	for _, want := range []string{"✓ m-1  create     IDLE after", "✓ m-2  create     IDLE after", "✗ nobody  create     not done: create nobody: NOT_FOUND", strings.Repeat("█", barWidth) + " 3/3"} {
		if strings.Count(seen, want) != 1 {
			t.Errorf("no %q, or twice:\n%s", want, seen)
		}
	}
}

// TestWalkAsks: on a terminal a walk asks, and takes no for an answer.
func TestWalkAsks(t *testing.T) {
	for answer, code := range map[string]int{"y\n": exitOK, "n\n": exitFailed, "\n": exitFailed} {
		s := &scripted{machines: walkable(), move: settle}
		term, ended := onTerminal(t, "walk", "--no-configure", "--insecure", "--addr="+serve(t, s, nil))
		sees(t, term, "Go on? [y/N]", "")
		if err := term.Type(answer); err != nil {
			t.Fatal(err)
		}
		if got := <-ended; got != code || (len(s.calls) > 0) != (code == exitOK) {
			t.Errorf("%q: exit code %d, %d calls:\n%s", answer, got, len(s.calls), term)
		}
	}
	s := &scripted{machines: walkable(), move: settle}
	term, ended := onTerminal(t, "walk", "--no-configure", "--insecure", "--addr="+serve(t, s, nil))
	sees(t, term, "Go on? [y/N]", "")
	if code := interrupt(t, ended); code != exitFailed || len(s.calls) > 0 {
		t.Errorf("an interrupted question: exit code %d, %d calls", code, len(s.calls))
	}
}

// TestTopOnTerminal draws the overview again; --once prints it.
func TestTopOnTerminal(t *testing.T) {
	s := &scripted{machines: fleet()}
	addr := serve(t, s, nil)
	term, ended := onTerminal(t, "top", "--interval=100ms", "--insecure", "--addr="+addr)
	sees(t, term, "no machine is under way", "")
	s.edit(func() { s.set(&pb.Machine{Id: "c", State: creating, InstanceType: "GP1-XS"}) })
	sees(t, term, "1 machine under way", "no machine is under way")
	if code := interrupt(t, ended); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	term, ended = onTerminal(t, "top", "--once", "--insecure", "--addr="+addr)
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	sees(t, term, "1 machine under way", "")
	if strings.Contains(term.Raw(), "\x1b[?25l") {
		t.Errorf("--once draws: %q", term.Raw())
	}
}
