package elasticmetal

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// The notes of a task. They survive restarts.
const (
	noteOrder   = "order"   // see mark
	noteOffer   = "offer"   // the id of what is about to be ordered
	noteTaken   = "taken"   // when the server became the task's
	noteSeen    = "seen"    // it was read since
	noteStatus  = "status"  // the vendor's words that were logged last
	noteBroken  = "broken"  // installs that ended in an error
	noteCounted = "counted" // the last of them is among them
	noteUnknown = "unknown" // installs that were refused since something was not found
)

// mark is what is on record of an order: written down before the POST, taken
// away when the API has surely refused it.
//
// The note reads "<about|sent> <Unix milliseconds> <process>".
type mark struct {
	there bool
	// sent is false for an order that was about to be sent. Only the process that
	// wrote it down knows that it was not.
	sent bool
	at   time.Time
	ours bool // this process wrote it
}

func (c *Cloud) mark(t *cloud.Task) mark {
	var word, process string
	var ms int64
	if n, err := fmt.Sscanf(t.Notes[noteOrder], "%s %d %s", &word, &ms, &process); n != 3 || err != nil {
		// What cannot be read is no proof that nothing was sent.
		return mark{there: t.Notes[noteOrder] != "", sent: true, at: time.Now()}
	}
	return mark{there: true, sent: word == "sent", at: time.UnixMilli(ms), ours: process == c.processID}
}

func (c *Cloud) setMark(t *cloud.Task, word string) {
	t.Note(noteOrder, fmt.Sprintf("%s %d %s", word, time.Now().UnixMilli(), c.processID))
}

func clearMark(t *cloud.Task) { delete(t.Notes, noteOrder) }

// doubtful says whether an order of the task may have gone out without its
// answer on record, and until when its server may still turn up.
func (c *Cloud) doubtful(t *cloud.Task) (until time.Time, doubt bool) {
	m := c.mark(t)
	if !m.there || m.ours && !m.sent {
		return time.Time{}, false
	}
	at := m.at
	if now := time.Now(); at.After(now) {
		at = now // the clock was set
	}
	if !m.sent {
		at = at.Add(c.timing.Turn + c.timing.Patience) // it may have been sent that much later
	}
	return at.Add(c.timing.Settle), true
}

func count(t *cloud.Task, key string) int {
	n, err := strconv.Atoi(strings.TrimSpace(t.Notes[key]))
	if err != nil {
		return 0
	}
	return n
}

// Doubtful says of the notes of a Create that has no server whether it may have
// ordered one.
func Doubtful(notes map[string]string) bool { return notes[noteOrder] != "" }
