package channel

import "time"

// cloneWindow is within how much time a host that was taken for replaced must
// be heard again to count as one of two. It is well over the longest poll, and
// short enough that a host that is restored from an image of the day before is
// not one.
const cloneWindow = 5 * time.Minute

// boots remembers the hosts that lately used one machine's token. A reboot or a
// replaced host is a change from one boot id to another; a cloned image is a
// change back.
type boots struct {
	recent [4]boot // newest first
	log    thinner
}

type boot struct {
	id   string
	seen time.Time
}

// see takes a boot id in and says whether it belongs to a second host. An agent
// that sends no id is not judged.
func (b *boots) see(id string, now time.Time) (cloned bool) {
	if id == "" {
		return false
	}
	at := len(b.recent) - 1 // the oldest goes when the id is new
	for i, r := range b.recent {
		if r.id == id {
			at = i
			cloned = i > 0 && now.Sub(r.seen) < cloneWindow
			break
		}
	}
	copy(b.recent[1:at+1], b.recent[:at])
	b.recent[0] = boot{id: id, seen: now}
	return cloned
}
