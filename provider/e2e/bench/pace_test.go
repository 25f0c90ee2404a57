package bench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// What a Create takes at the fake's pace of 1, which is the recorded one.
const (
	paced = 100 // Creates
	// ownDelay is the cloud's own: from a power-on that was accepted until the server
	// runs. The fake's agent calls at once then.
	ownDelay = 5 * time.Second
	// createCalls are those of one Create, limitRate and limitBurst the default
	// limit on them.
	createCalls = 6
	limitRate   = 10
	limitBurst  = 20
)

// lines are those of a log that say when a host was heard from and a Create done.
type lines struct {
	mu              sync.Mutex
	contacts, idles map[string]time.Time // by machine
}

var (
	stamped   = regexp.MustCompile(`^time=(\S+) .*machine_id=(\S+)`)
	firstWord = "heard from a host for the first time"
	lastWord  = "transition done"
)

func (l *lines) add(line string) {
	contact, idle := strings.Contains(line, firstWord), strings.Contains(line, lastWord)
	m := stamped.FindStringSubmatch(line)
	if !contact && !idle || m == nil {
		return
	}
	at, err := time.Parse(time.RFC3339, m[1])
	if err != nil {
		return // the count of what was found tells
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contacts == nil {
		l.contacts, l.idles = map[string]time.Time{}, map[string]time.Time{}
	}
	if contact {
		l.contacts[m[2]] = at
	} else {
		l.idles[m[2]] = at
	}
}

// afterContact is how long each machine was heard from before it was IDLE: the one
// that was created alone, and the others, sorted.
func (l *lines) afterContact(first string) (alone time.Duration, others timings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.contacts {
		switch idle, ok := l.idles[id]; {
		case !ok:
		case id == first:
			alone = idle.Sub(at)
		default:
			others = append(others, idle.Sub(at))
		}
	}
	slices.Sort(others)
	return alone, others
}

// BenchmarkPace measures Creates from the call to IDLE at the cloud's own pace,
// beside what the cloud takes for itself, and beside the limit on calls.
func BenchmarkPace(b *testing.B) {
	for _, limited := range []bool{false, true} {
		name, floor := "unlimited", ownDelay
		flags := []string{"--fake-scale=1", "--log-level=debug"}
		if limited {
			name = fmt.Sprintf("rate=%d", limitRate)
			floor = (paced*createCalls - limitBurst) * time.Second / limitRate
			flags = append(flags, fmt.Sprint("--api-rate=", limitRate), fmt.Sprint("--api-burst=", limitBurst))
		}
		b.Run(name, func(b *testing.B) {
			var took time.Duration
			var alone time.Duration
			var after timings
			for b.Loop() {
				s := serve(b, paced+1, b.TempDir()+"/state.db", flags...)
				ids := s.ids()
				s.create(ids[:1], 1)
				s.quiet()
				began := time.Now()
				s.create(ids[1:], 8)
				s.quiet()
				took = time.Since(began)
				if list, err := s.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_IDLE}}); err != nil || len(list.GetMachines()) != paced+1 {
					b.Fatalf("%d of %d machines are IDLE, %v", len(list.GetMachines()), paced+1, err)
				}
				s.stop()
				if alone, after = s.lines.afterContact(ids[0]); len(after) != paced {
					b.Fatalf("the log tells of %d machines, not of %d", len(after), paced)
				}
			}
			b.ReportMetric(ratio(took, floor), "time/floor")
			b.ReportMetric(after.at(0.99).Seconds()*1000, "ms-contact-p99")
			beside := fmt.Sprintf("the cloud's own delays of one %s: × %.2f", short(floor), ratio(took, floor))
			limit := "no limit on calls"
			if limited {
				limit = fmt.Sprintf("%d calls a second", limitRate)
				beside = fmt.Sprintf("%d calls each at that rate %s: × %.2f", createCalls, short(floor), ratio(took, floor))
			}
			record(fmt.Sprintf("%d Creates at the cloud's pace", paced), paced, limit, short(took), beside)
			record("first contact to IDLE", paced, limit, fmt.Sprintf("p50 %s, p99 %s", short(after.at(0.5)), short(after.at(0.99))),
				"one Create alone "+short(alone))
		})
	}
}
