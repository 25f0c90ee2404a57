package channel

import (
	"slices"
	"time"
)

// formerWindow is within how much time a boot that was followed by another must
// be heard again to prove that there are two hosts. It is well over the longest
// poll, and short enough that a host that is put back to an earlier state of its
// memory is not one of two.
const formerWindow = 5 * time.Minute

// proofTime is how long a new boot waits while the one before may still be
// there: over the longest pause of an agent whose poll was just ended.
const proofTime = 10 * time.Second

// boots tells hosts apart that were cloned from one disk and so state the same
// id: each start of a machine has a boot id of its own, and one that was followed
// by another never comes back. A reboot is a change from one to the next; two
// boots that are both heard are two hosts, and the one that came first is the
// machine's.
//
// It is not kept on disk: two hosts betray themselves again within a minute.
type boots struct {
	current   boot
	former    [4]boot // followed by another; newest first
	candidate boot    // waits to become current; seen is since when
	lives     bool    // current was heard since
	refused   [8]string
}

type boot struct {
	id   string
	seen time.Time
}

// judgement is what becomes of a request.
type judgement int

const (
	admitted judgement = iota
	foreign            // of a second host
	unproven           // of a host that may be a second one; soon it will be known
)

// judge takes in the boot id of a request. parked says that a poll of the
// current boot is held open. An agent that sends no id is not judged.
func (b *boots) judge(id string, now time.Time, parked bool) judgement {
	switch {
	case id == "":
		return admitted
	case slices.Contains(b.refused[:], id):
		return foreign
	case b.current.id == "" || b.current.id == id:
		b.current, b.lives = boot{id, now}, true
		return admitted
	case b.formerly(id, now) >= 0:
		// It lives, and so did those that were taken for its next boots.
		at := b.formerly(id, now)
		b.refuse(b.current.id)
		for _, f := range b.former[:at] {
			b.refuse(f.id)
		}
		clear(b.former[copy(b.former[:], b.former[at+1:]):])
		b.current, b.candidate = boot{id, now}, boot{}
		return admitted
	case b.candidate.id != id && parked:
		b.candidate, b.lives = boot{id, now}, false
		return unproven
	case b.candidate.id == id && b.lives:
		b.refuse(id)
		b.candidate = boot{}
		return foreign
	case b.candidate.id == id && now.Sub(b.candidate.seen) < proofTime:
		return unproven
	}
	copy(b.former[1:], b.former[:])
	b.former[0] = b.current
	b.current, b.candidate = boot{id, now}, boot{}
	return admitted
}

// formerly is the place of a boot among the former ones, negative when it is
// none, or too long ago to prove anything.
func (b *boots) formerly(id string, now time.Time) int {
	return slices.IndexFunc(b.former[:], func(f boot) bool { return f.id == id && now.Sub(f.seen) < formerWindow })
}

func (b *boots) refuse(id string) {
	copy(b.refused[1:], b.refused[:])
	b.refused[0] = id
}
