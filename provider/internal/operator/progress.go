package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// progress shows transitions under way. Its methods may be called by many
// goroutines, but close only once all of them have returned.
type progress interface {
	begin(id string, k kind)
	accepted(id string, k kind, operation string)
	seen(id string, k kind, m *pb.Machine)
	step(op runningOperation)
	note(text string)
	// end is the last of a transition; m may be nil.
	end(id string, k kind, m *pb.Machine, operation string, err error)
	// run draws until ctx ends.
	run(ctx context.Context)
	close() error
}

// newProgress draws on a terminal, and writes lines elsewhere.
func newProgress(o *terminal.Output, machines int) progress {
	now := time.Now()
	t := &tracks{out: o, began: now, machines: machines, by: map[string]*track{}}
	if o.Live {
		return &bars{tracks: t, screen: terminal.NewScreen(o)}
	}
	return &lines{tracks: t}
}

// track is one transition as it was seen last.
type track struct {
	id       string
	kind     kind
	began    time.Time
	state    pb.MachineState
	stage    string
	deadline time.Time
}

// tracks are the transitions under way, in the order of their beginning.
type tracks struct {
	mu       sync.Mutex
	out      *terminal.Output
	began    time.Time
	machines int
	by       map[string]*track
	order    []*track
	done     int
	failed   int
	err      error // of the first write that failed
}

// open returns a machine's track, and makes it.
func (t *tracks) open(id string, k kind) *track {
	tr := t.by[id]
	if tr == nil {
		tr = &track{id: id, kind: k, began: time.Now()}
		t.by[id] = tr
		t.order = append(t.order, tr)
	}
	return tr
}

// finish takes a track away and says how it ended.
func (t *tracks) finish(id string, k kind, m *pb.Machine, operation string, err error) string {
	tr := t.open(id, k)
	delete(t.by, id)
	for i, other := range t.order {
		if other == tr {
			t.order = append(t.order[:i], t.order[i+1:]...)
			break
		}
	}
	t.done++
	switch {
	case err != nil:
		t.failed++
		return "not done: " + firstLine(err)
	case underWay(m.GetState()):
		return "accepted, operation " + printable(operation)
	default:
		return fmt.Sprintf("%s after %s%s", stateName(m.GetState()), time.Since(tr.began).Round(10*time.Millisecond), where(m))
	}
}

func (t *tracks) write(text string) {
	_, err := fmt.Fprintln(t.out, text)
	t.err = errors.Join(t.err, err)
}

// lines are plain lines, one an event.
type lines struct{ *tracks }

func (l *lines) say(id string, k kind, text string) {
	l.write(fmt.Sprintf("%s  %s  %-9s  %s", clock(), printable(id), k.name, text))
}

func (l *lines) begin(id string, k kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open(id, k)
}

func (l *lines) accepted(id string, k kind, operation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(id, k, "accepted, operation "+printable(operation))
}

func (l *lines) seen(id string, k kind, m *pb.Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tr := l.open(id, k)
	if m.GetState() != tr.state && underWay(m.GetState()) {
		l.say(id, k, stateName(m.GetState()))
	}
	tr.state = m.GetState()
	l.stage(tr, m.GetLabels()[stageLabel])
}

func (l *lines) stage(tr *track, stage string) {
	if stage != "" && stage != tr.stage {
		tr.stage = stage
		l.say(tr.id, tr.kind, "step "+printable(stage))
	}
}

func (l *lines) step(op runningOperation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tr := l.by[op.MachineID]; tr != nil {
		l.stage(tr, op.Step)
	}
}

func (l *lines) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(clock() + "  " + printable(text))
}

func (l *lines) end(id string, k kind, m *pb.Machine, operation string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The error of a single one is said whole, at the end.
	if text := l.finish(id, k, m, operation, err); err == nil || l.machines > 1 {
		l.say(id, k, text)
	}
}

func (*lines) run(context.Context) {}

func (l *lines) close() error { return l.err }

// drawPause is between two pictures of the spinner.
const drawPause = 100 * time.Millisecond

// barWidth is the width of the bar that counts machines.
const barWidth = 30

// bars are drawn on a terminal: a line for each transition under way, above them
// what has ended, below them how many have.
type bars struct {
	*tracks
	screen *terminal.Screen
	drawn  int
}

func (b *bars) begin(id string, k kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open(id, k)
}

func (b *bars) accepted(string, kind, string) {}

func (b *bars) seen(id string, k kind, m *pb.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tr := b.open(id, k)
	tr.state = m.GetState()
	if stage := m.GetLabels()[stageLabel]; stage != "" {
		tr.stage = stage
	}
}

func (b *bars) step(op runningOperation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if tr := b.by[op.MachineID]; tr != nil {
		tr.stage, tr.deadline = op.Step, op.Deadline
	}
}

func (b *bars) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.print(b.out.Paint(terminal.Yellow, printable(text)))
}

func (b *bars) end(id string, k kind, m *pb.Machine, operation string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mark, style := settledStyle(err)
	text := b.finish(id, k, m, operation, err)
	b.print(fmt.Sprintf("%s %s  %-9s  %s", b.out.Paint(style, mark), printable(id), k.name, text))
}

func (b *bars) print(line string) {
	b.err = errors.Join(b.err, b.screen.Print(line, b.picture(time.Now())))
}

func (b *bars) run(ctx context.Context) {
	tick := time.NewTicker(drawPause)
	defer tick.Stop()
	for {
		b.mu.Lock()
		b.err = errors.Join(b.err, b.screen.Draw(b.picture(time.Now())))
		failed := b.err != nil
		b.mu.Unlock()
		if failed {
			return // close says it; the transitions go on
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// picture is what is drawn now; the lock is held.
func (b *bars) picture(now time.Time) []string {
	b.drawn++
	var out []string
	for _, tr := range b.order {
		line := fmt.Sprintf("%s %s  %-9s  %s", b.out.Paint(terminal.Cyan, terminal.Spin(b.drawn)), printable(tr.id), tr.kind.name,
			b.out.Paint(stateStyle(tr.state), stateName(tr.state)))
		if tr.state == pb.MachineState_MACHINE_STATE_UNSPECIFIED {
			line = fmt.Sprintf("%s %s  %-9s  asked", b.out.Paint(terminal.Cyan, terminal.Spin(b.drawn)), printable(tr.id), tr.kind.name)
		}
		if tr.stage != "" {
			line += "  " + printable(tr.stage)
		}
		line += "  " + age(now.Sub(tr.began))
		if left := tr.deadline.Sub(now); !tr.deadline.IsZero() && left > 0 {
			line += b.out.Paint(terminal.Faint, "  deadline in "+age(left))
		}
		out = append(out, line)
	}
	if b.machines > 1 {
		counts := fmt.Sprintf("%d/%d", b.done, b.machines)
		if b.failed > 0 {
			counts += b.out.Paint(terminal.Red, fmt.Sprintf("  %d not done", b.failed))
		}
		out = append(out, fmt.Sprintf("%s %s  %s", terminal.Bar(float64(b.done)/float64(b.machines), barWidth), counts, age(now.Sub(b.began))))
	}
	return out
}

func (b *bars) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last []string
	if b.machines > 1 {
		last = b.picture(time.Now())
	}
	return errors.Join(b.err, b.screen.Draw(last), b.screen.Close())
}
