package instances

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// The notes of a task. They survive restarts; a lost one costs time, never a
// server.
const (
	noteOrder     = "order"   // see window
	noteOrdered   = "ordered" // when the server was ordered
	noteSeen      = "seen"    // it was read since
	noteRoot      = "root"    // ids of block volumes that came with the ordered server
	noteRootLocal = "root-local"
	noteServers   = "servers"   // ids to tear down, and with them:
	noteLocal     = "local"     // ids of local volumes
	noteBlock     = "block"     // ids of block volumes
	noteAddresses = "addresses" // ids of flexible IPs
	noteSwitched  = "switched"  // when its power-on was accepted
	noteOff       = "off"       // a started server was seen stopped once
	noteRefused   = "refused-"  // + server id: it would not terminate
	noteMoving    = "moving-"   // + server id: in transition since when
)

// ids reads a list out of a note.
func ids(t *cloud.Task, key string) []string { return strings.Fields(t.Notes[key]) }

// addID adds to the list in a note what is not in it.
func addID(t *cloud.Task, key, id string) {
	if list := ids(t, key); !slices.Contains(list, id) {
		t.Note(key, strings.Join(append(list, id), " "))
	}
}

// window is what the note of an order says: until when a server may still come
// out of a POST whose answer nobody saw. A window that another process opened
// proves nothing: that process may have sent one more POST and died before it
// could write anything down.
//
// The note reads "<Unix milliseconds> <process>"; 0 stands for a POST that was
// refused for sure.
type window struct {
	known bool
	until time.Time
}

func (c *Cloud) window(t *cloud.Task) window {
	at, process, ok := strings.Cut(t.Notes[noteOrder], " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || process != c.processID {
		return window{}
	}
	return window{known: true, until: time.UnixMilli(ms)}
}

func (c *Cloud) openWindow(t *cloud.Task) {
	c.setWindow(t, time.Now().Add(c.timing.Settle).UnixMilli())
}

func (c *Cloud) closeWindow(t *cloud.Task) { c.setWindow(t, 0) }

func (c *Cloud) setWindow(t *cloud.Task, ms int64) {
	t.Note(noteOrder, strconv.FormatInt(ms, 10)+" "+c.processID)
}

// settled returns nil when no order of the task can be in flight any more, so that
// a list that is begun from now on has its server, and asks to be called again
// otherwise.
func (c *Cloud) settled(t *cloud.Task) error {
	w := c.window(t)
	left := time.Until(w.until)
	if w.known && left <= 0 {
		return nil
	}
	// A window that ends later than one opened now means that the clock was set.
	if !w.known || left > c.timing.Settle {
		c.openWindow(t)
	}
	return c.again("an order may be under way: waiting until its server would be listed")
}
