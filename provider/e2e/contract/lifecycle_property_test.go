package contract

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// epochs gives each run of a property a reign of its own, so that marks of the
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

// drawCall draws a call for a machine, by a shard with a number, with a token of a
// reign. Of the kinds, likely is drawn as often as all of them.
func drawCall(t *rapid.T, id, property string, reign int64, likely kind) event {
	e := event{shard: rapid.IntRange(-1, len(life{}.marks)-1).Draw(t, "shard")}
	if shared.fenced {
		e.shard = max(e.shard, 0)
	}
	e.call = call{id: id, kind: likely, cluster: rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "cluster")}
	if rapid.Bool().Draw(t, "any kind") {
		e.call.kind = rapid.SampledFrom(kinds).Draw(t, "kind")
	}
	switch e.call.kind {
	case configure:
		e.call.metadata = metadatas().Draw(t, "metadata")
	case drain:
		e.call.grace = rapid.Int64Range(0, 1).Draw(t, "grace")
	case create, del:
	}
	if e.shard >= 0 {
		e.call.token = token{
			fmt.Sprintf("%s-%s-%d", run, property, e.shard),
			8*reign + rapid.Int64Range(0, 7).Draw(t, "epoch"), rapid.Int64Range(0, 9).Draw(t, "sequence"),
		}
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
		e.call.token.epoch = -1
	}
	return e
}

// TestLifecycleProperty sends one machine legal and illegal calls, and compares
// each answer, and what Get shows, with the model.
func TestLifecycleProperty(t *testing.T) {
	s := open(t, 1)
	id := s.lease(1)[0]
	rapid.Check(t, func(t *rapid.T) {
		s, reign := s.in(t), epochs.Add(1)
		s.bringHome(id)
		lives := newborn()
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
		for range rapid.IntRange(1, 24).Draw(t, "length") {
			before := look().machine
			e := drawCall(t, id, "life", reign, likely)
			if rapid.IntRange(0, 7).Draw(t, "spoilt") == 0 {
				e = e.spoil()
			}
			e.answer = s.do(e.call)
			observe(e)
			_, moving := ends[before.GetState()]
			if after := look().machine; e.answer.err != nil && !moving && !proto.Equal(before, after) {
				t.Fatalf("%v: it changed %v to %v", e, before, after)
			}
			if rapid.Bool().Draw(t, "settle") {
				s.rest(id)
				look()
			}
			for _, k := range kinds {
				if lives[0].state == edges[k].from {
					likely = k
				}
			}
			if lives[0].state == idle && rapid.Bool().Draw(t, "delete") {
				likely = del
			} else if lives[0].state == idle {
				likely = configure
			}
		}
	})
}

// TestInterleavingProperty has several callers, of shards that some of them
// share, send calls for the same machines at the same time. Some order must
// explain all answers, so that no transition was started twice.
func TestInterleavingProperty(t *testing.T) {
	const callers = 4
	s := open(t, 2)
	ids := s.lease(min(2, *machines))
	type step struct {
		event
		wait bool // for the machine to rest, before the call
	}
	rapid.Check(t, func(t *rapid.T) {
		s, reign := s.in(t), epochs.Add(1)
		for _, id := range ids {
			s.bringHome(id)
		}
		var plans [callers][]step
		for c := range plans {
			for range rapid.IntRange(1, 7).Draw(t, "length") {
				id := rapid.SampledFrom(ids).Draw(t, "machine")
				e := drawCall(t, id, "interleaved", reign, rapid.SampledFrom(kinds).Draw(t, "likely"))
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
			if err := explain(newborn(), events); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}
