package contract

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// epochs gives each run of a property epochs of its own, so that marks of the
// run before do not matter.
var epochs atomic.Int64

// texts draws any valid UTF-8, mostly what is easily lost on the way.
func texts() *rapid.Generator[string] {
	odd := rapid.SampledFrom([]rune{0, 1, '\t', '\n', '\r', 0x1b, 0x1f, ' ', '"', '\\', 0x7f, 0x85, 0xa0, 0x301, 0x2028, 0x202e, 0xfeff, 0xfffd, 0xfffe, 0x1f600, utf8.MaxRune})
	sound := rapid.Rune().Filter(utf8.ValidRune)
	return rapid.StringOfN(rapid.OneOf(odd, sound), 0, 40, -1)
}

func metadatas() *rapid.Generator[map[string]string] {
	return rapid.MapOfN(texts(), texts(), 0, 12)
}

// TestMetadataProperty binds machines with any metadata, which must come back
// byte for byte, and leave with the drain.
func TestMetadataProperty(t *testing.T) {
	s := open(t, 4)
	ids := s.lease(min(4, *machines))
	for _, id := range ids {
		s.must(create, id, fresh())
	}
	rapid.Check(t, func(t *rapid.T) {
		s := s.in(t)
		sent := map[string]map[string]string{}
		for _, id := range ids {
			if s.rest(id).GetState() == configured { // of a run that failed
				s.must(drain, id, fresh())
			}
			sent[id] = metadatas().Draw(t, "metadata")
			a := s.do(call{kind: configure, id: id, token: fresh(), cluster: "c", metadata: sent[id]})
			if a.err != nil || !maps.Equal(a.machine.GetShardMetadata(), sent[id]) {
				t.Fatalf("ack of Configure: %v, metadata %q, sent %q", a, a.machine.GetShardMetadata(), sent[id])
			}
		}
		for _, id := range ids {
			if m := s.await(id, configured); !maps.Equal(m.GetShardMetadata(), sent[id]) {
				t.Errorf("Get: %q, sent %q", m.GetShardMetadata(), sent[id])
			}
		}
		for _, m := range s.list().GetMachines() {
			if want, ours := sent[m.GetId()]; ours && !maps.Equal(m.GetShardMetadata(), want) {
				t.Errorf("List: %q, sent %q", m.GetShardMetadata(), want)
			}
		}
		for _, id := range ids {
			a := s.do(call{kind: drain, id: id, token: fresh()})
			if a.err != nil {
				t.Fatalf("%v", a.err)
			}
		}
		for _, id := range ids {
			if m := s.await(id, idle); len(m.GetShardMetadata()) > 0 {
				t.Errorf("after the drain: %q", m.GetShardMetadata())
			}
		}
	})
}

// reign draws the calls of one run of a property, by shards with numbers. Most
// tokens are newer than the last that was drawn for the shard.
type reign struct {
	property string
	last     [len(life{}.marks)]token
}

func newReign(property string) *reign {
	r := &reign{property: property}
	for i := range r.last {
		r.last[i] = token{fmt.Sprintf("%s-%s-%d", run, property, i), epochs.Add(100), 5}
	}
	return r
}

func (r *reign) token(t *rapid.T) (shard int, tok token) {
	shard = rapid.IntRange(-1, len(r.last)-1).Draw(t, "shard")
	if shared.fenced {
		shard = max(shard, 0)
	}
	if shard < 0 {
		return shard, token{}
	}
	tok = r.last[shard]
	switch rapid.SampledFrom([]string{"next", "next", "next", "next", "next", "reign", "again", "older", "past"}).Draw(t, "token") {
	case "next":
		tok.sequence++
	case "reign":
		tok.epoch++
		tok.sequence = 0
	case "again":
		return shard, tok
	case "older":
		tok.sequence = max(tok.sequence-1, 0)
		return shard, tok
	default:
		tok.epoch--
		tok.sequence = math.MaxInt64
		return shard, tok
	}
	r.last[shard] = tok
	return shard, tok
}

// rarestFirst are the kinds in the order in which a machine may seldom take
// them: rapid prefers the first.
var rarestFirst = []kind{drain, del, configure, create}

// draw draws a call for a machine, most often of the likely kind.
func (r *reign) draw(t *rapid.T, id string, likely kind) event {
	e := event{call: call{id: id, kind: likely}}
	e.shard, e.call.token = r.token(t)
	if rapid.Bool().Draw(t, "any kind") {
		e.call.kind = rapid.SampledFrom(rarestFirst).Draw(t, "kind")
	}
	switch e.call.kind {
	case configure:
		e.call.cluster = rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "cluster")
		e.call.metadata = metadatas().Draw(t, "metadata")
	case drain:
		e.call.grace = rapid.Int64Range(0, 1).Draw(t, "grace")
	case create, del:
	}
	return e
}

// spoil gives a call a wrong argument.
func (e event) spoil() event {
	e.invalid = true
	switch e.call.kind {
	case configure:
		e.call.cluster = ""
	case drain:
		e.call.grace = -1
	case create, del:
		e.call.id = ""
	}
	return e
}

// TestLifecycleProperty sends one machine legal and illegal calls, and compares
// each answer, and what Get shows, with the model.
func TestLifecycleProperty(t *testing.T) {
	s := open(t, forRuns(1))
	leased := s.lease(1)
	rapid.Check(t, func(t *rapid.T) {
		s, reign := s.in(t), newReign("life")
		id := s.anew(leased)[0]
		lives := unborn()
		observe := func(e event) {
			var err error
			if lives, err = follow(lives, e); err != nil {
				t.Fatalf("%v", err)
			}
		}
		look := func() answer {
			a := answer{machine: s.get(id)}
			observe(event{get: true, answer: a})
			return a
		}
		likely := create
		for range rapid.IntRange(10, 30).Draw(t, "length") {
			before := look().machine
			e := reign.draw(t, id, likely)
			if rapid.IntRange(0, 7).Draw(t, "spoilt") == 0 {
				e = e.spoil()
			}
			e.answer = s.do(e.call)
			observe(e)
			_, moving := ends[before.GetState()]
			if after := look().machine; e.answer.err != nil && !moving && !proto.Equal(before, after) {
				t.Fatalf("%v: it changed %v to %v", e, before, after)
			}
			if rapid.IntRange(0, 4).Draw(t, "hurry") > 0 {
				s.rest(id)
				look()
			}
			var fits []kind
			for _, k := range rarestFirst {
				if keeps() && k == del {
					continue
				}
				if lives[0].state == edges[k].from {
					fits = append(fits, k)
				}
			}
			if len(fits) > 0 {
				likely = rapid.SampledFrom(fits).Draw(t, "likely")
			}
		}
	})
}

// TestInterleavingProperty has several callers, of shards that some of them
// share, send calls for the same machines at the same time. Some order must
// explain all answers, so that no transition was started twice.
func TestInterleavingProperty(t *testing.T) {
	const callers = 4
	s := open(t, forRuns(2))
	leased := s.lease(min(2, *machines))
	type step struct {
		event
		wait bool // for the machine to rest, before the call
	}
	rapid.Check(t, func(t *rapid.T) {
		s, reign := s.in(t), newReign("interleaved")
		ids := s.anew(leased)
		var plans [callers][]step
		for c := range plans {
			for range rapid.IntRange(1, 7).Draw(t, "length") {
				id := rapid.SampledFrom(ids).Draw(t, "machine")
				e := reign.draw(t, id, rapid.SampledFrom(rarestFirst).Draw(t, "likely"))
				plans[c] = append(plans[c], step{e, rapid.Bool().Draw(t, "wait")})
			}
		}
		var wg sync.WaitGroup
		var clock atomic.Int64
		var happened [callers][]event
		for c, plan := range plans {
			wg.Go(func() {
				record := func(e event, do func() answer) event {
					e.from = clock.Add(1)
					e.answer = do()
					e.to = clock.Add(1)
					happened[c] = append(happened[c], e)
					return e
				}
				for _, p := range plan {
					if p.wait {
						record(event{get: true, call: call{id: p.call.id}}, func() answer { return s.restOrError(p.call.id) })
					}
					record(p.event, func() answer { return s.do(p.call) })
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			var events []event
			for _, by := range happened {
				for _, e := range by {
					if e.call.id == id {
						events = append(events, e)
					}
				}
			}
			events = append(events, event{get: true, from: clock.Add(1), answer: answer{machine: s.rest(id)}, to: clock.Add(1)})
			if err := explain(unborn(), events); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}
