// Package store keeps the machine records: durably in one file, and in memory
// for reads.
//
// All changes pass through one committer goroutine. It takes what is queued,
// runs the mutations one after the other on the newest state, writes the batch
// in one transaction, publishes it to readers and then answers the callers. So
// readers see committed state only, a failed write changes nothing, and one
// disk sync serves many callers.
//
// Machines are kept encoded as List shows them, in ascending order of their
// last visible change: a List costs what it returns.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// Options says where a store lives and what its readers see.
type Options struct {
	// Path is the state file; "" keeps everything in memory only. Its folder
	// must exist.
	Path string
	// Owner is whose state it is: kept with a file that does not say so yet, and
	// compared with one that does. The zero Owner opens any.
	Owner Owner
	// View encodes a machine as List and Get show it. It is called at load and
	// when a record becomes visible, from several goroutines at once. The result
	// is never changed, by neither side. nil shows nothing.
	View func(*machine.Record) []byte
	// Log is told of what an operator should know; nil discards it.
	Log *slog.Logger
	// Committed is told of each batch: how many changes shared it, how long it took
	// to make them durable, and why it failed. It is called by the committer and
	// must not block; nil for nobody.
	Committed func(changes int, took time.Duration, err error)
	// Linger is how long a DoLater waits for a Do to ride with; 0 means
	// DefaultLinger.
	Linger time.Duration
}

// DefaultLinger delays a completion by less than a disk sync.
const DefaultLinger = 3 * time.Millisecond

// persister makes batches durable. A nil one is a store in memory.
type persister interface {
	// write commits a batch. An error that matches errFull leaves the store
	// usable; after any other the state on disk is not known.
	write(b *batch) error
	// room is an error while so many bytes more cannot be written.
	room(bytes int) error
	size() int64
	close() error
	// copyTo writes a consistent copy; it may run beside the other methods.
	copyTo(w io.Writer) error
	// copyPlace is the folder and the os.CreateTemp pattern of copies.
	copyPlace() (dir, pattern string)
	// mayHoldRemains says whether a copy has to leave out what was erased.
	mayHoldRemains() bool
}

// errFull marks a failed write that certainly left the file as it was.
var errFull = errors.New("no space left")

// ErrClosed is why calls fail after Close.
var ErrClosed = errors.New("the store is closed")

// Store keeps the machine records. All methods may be called from many
// goroutines at once.
type Store struct {
	view   func(*machine.Record) []byte
	log    *slog.Logger
	linger time.Duration
	// committed is Options.Committed, or does nothing.
	committed func(changes int, took time.Duration, err error)
	disk      persister
	instance  [instanceBytes]byte
	restored  time.Time

	index       index
	generations generations
	marks       markTable // the committer's own
	enc         encoder   // the committer's own
	needed      int       // bytes that the last write lacked; 0 when it did not fail for space; the committer's own

	full atomic.Pointer[error] // why nothing can be written for now; nil when it can

	urgent, later chan *request
	closing       chan struct{} // closed by Close
	closeOnce     sync.Once
	stopped       chan struct{} // closed when the committer has returned
	closeErr      error         // of the disk; set before stopped is closed

	broken    chan struct{} // closed when the file must not be written any more
	brokenErr error         // set before broken is closed

	ownership                   atomic.Pointer[machine.Ownership] // nil for none
	inventoried                 atomic.Pointer[time.Time]         // when; nil until then
	batches, decisions, unknown atomic.Uint64
}

// Open loads the state file, or makes one where none is, and starts the
// committer. The caller must Close the store. It fails within seconds when
// another process holds the file, and refuses a damaged file, one of a newer
// release or another owner's, with one line that names the file and what to do.
func Open(o Options) (*Store, error) {
	s := &Store{
		view:    o.View,
		enc:     encoder{provider: o.Owner.Provider},
		log:     o.Log,
		linger:  o.Linger,
		urgent:  make(chan *request, urgentQueue),
		later:   make(chan *request, laterQueue),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
		broken:  make(chan struct{}),
	}
	if s.view == nil {
		s.view = func(*machine.Record) []byte { return nil }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.committed = o.Committed; s.committed == nil {
		s.committed = func(int, time.Duration, error) {}
	}
	if s.linger == 0 {
		s.linger = DefaultLinger
	}
	s.index.init()
	s.marks.init()
	s.generations.init()

	if o.Path == "" {
		if _, err := rand.Read(s.instance[:]); err != nil {
			return nil, fmt.Errorf("make an instance id: %w", err)
		}
	} else {
		begin := time.Now()
		f, err := openFile(o.Path, schema, o.Owner)
		if err != nil {
			return nil, fmt.Errorf("state file %s: %w", o.Path, err)
		}
		if err := f.load(s); err != nil {
			return nil, fmt.Errorf("state file %s: %w", o.Path, errors.Join(err, f.close()))
		}
		s.disk = f
		if len(f.upgraded) > 0 {
			s.log.Warn("state file upgraded; earlier releases read the copy that was kept", "versions", f.upgraded, "copy", o.Path+".v*")
		}
		if f.swept.files > 0 {
			s.log.Warn("files that a killed process left beside the state file were removed", "files", f.swept.files)
		}
		if f.swept.err != nil {
			s.log.Warn("files that a killed process left beside the state file cannot be removed; the next start tries again", "error", f.swept.err)
		}
		if f.remains != nil {
			s.log.Warn("remains of erased bootstrap blobs, which are sealed, could not be dropped from the state file; the next start tries again", "error", f.remains)
		}
		s.log.Info("state file loaded", "path", o.Path, "fresh", f.fresh, "machines", s.Size(),
			"bytes", f.size(), "took", time.Since(begin).Round(time.Millisecond))
	}
	s.unknown.Store(uint64(s.marks.len()))
	go s.run()
	return s, nil
}

// Inventoried says that SetInventoried was called on this state, by this process
// or by one before. While it is not, servers may exist that the state does not
// know of: a new file says nothing about what there was before it.
func (s *Store) Inventoried() bool { return s.inventoried.Load() != nil }

// InventoriedAt is when that was made durable: an instance that an earlier state
// had ordered just before may have been listed only later. It is zero if it never
// was, or by a release that did not write the time down.
func (s *Store) InventoriedAt() time.Time {
	if at := s.inventoried.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// SetInventoried makes durable that every server that the cloud had is known to
// the state. The error is that of Do.
func (s *Store) SetInventoried(ctx context.Context) error {
	if s.Inventoried() {
		return nil
	}
	_, err := s.submit(ctx, s.urgent, &request{
		inventoried: time.Now(),
		mutate:      func([]machine.Record) ([]machine.Next, error) { return nil, nil },
	})
	return err
}

// Instance identifies the state: made with the file, or with a store in memory.
func (s *Store) Instance() [16]byte { return s.instance }

// Restored is when a copy was made this state by Restore; zero if it never was.
func (s *Store) Restored() time.Time { return s.restored }

// Done is closed when the store is broken: a write failed in a way that leaves
// the state on disk unknown. Every later change is refused, so the process
// should stop; a restart reads what is really there.
func (s *Store) Done() <-chan struct{} { return s.broken }

// Err returns why the store is broken, nil while it is not.
func (s *Store) Err() error {
	select {
	case <-s.broken:
		return s.brokenErr
	default:
		return nil
	}
}

// Close commits what is queued, waits for the committer and closes the file.
// Reads still work afterwards; changes fail.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	<-s.stopped
	return s.closeErr
}

// Stats are the store's own numbers.
type Stats struct {
	Machines  int
	Unknown   int    // ids without a machine whose fencing marks are kept
	Revision  uint64 // the last one given out
	Batches   uint64 // committed since Open
	Decisions uint64 // in those batches
	FileBytes int64  // 0 in memory
}

// Stats returns the store's numbers.
func (s *Store) Stats() Stats {
	st := Stats{
		Unknown:   int(s.unknown.Load()),
		Batches:   s.batches.Load(),
		Decisions: s.decisions.Load(),
	}
	st.Machines, st.Revision = s.index.sizes()
	if s.disk != nil {
		st.FileBytes = s.disk.size()
	}
	return st
}

// Size returns how many machines there are.
func (s *Store) Size() int {
	n, _ := s.index.sizes()
	return n
}

// Do runs the mutation on the newest state of the machine, makes the outcome
// durable and returns the record as committed with the mutation's own error.
//
// An id that no machine has is given to the mutation in state Unknown, with the
// fencing marks that are kept for it. Returned as Private and still Unknown,
// its marks are kept (of a bounded number of ids, the oldest are dropped);
// returned in another state, it is inserted.
//
// When too many changes are queued the error is a *machine.Error with code
// Exhausted; nothing was done. When the write fails the error is a *machine.Error with code Unavailable and
// nothing has changed. When ctx ends first, the error wraps its cause and the
// mutation may still be committed.
func (s *Store) Do(ctx context.Context, id string, m machine.Mutation) (machine.Record, error) {
	return s.one(ctx, s.urgent, id, m)
}

// DoLater is Do for changes that no caller waits for, such as completions: it
// lingers for a few milliseconds to ride on another commit.
func (s *Store) DoLater(ctx context.Context, id string, m machine.Mutation) (machine.Record, error) {
	return s.one(ctx, s.later, id, m)
}

func (s *Store) one(ctx context.Context, queue chan *request, id string, m machine.Mutation) (machine.Record, error) {
	recs, err := s.submit(ctx, queue, &request{
		ids: []string{id},
		mutate: func(cur []machine.Record) ([]machine.Next, error) {
			rec, change, err := m(cur[0])
			return []machine.Next{{Record: rec, Change: change}}, err
		},
	})
	if len(recs) == 0 {
		return machine.Record{}, err
	}
	return recs[0], err
}

// DoMany is Do for several machines at once: all are committed or none is.
// The mutation gets the records in the order of ids, which must differ, and
// returns one machine.Next for each in the same order.
func (s *Store) DoMany(ctx context.Context, ids []string, m func(current []machine.Record) ([]machine.Next, error)) ([]machine.Record, error) {
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			return nil, fmt.Errorf("machine %q: named twice in one change", id)
		}
		seen[id] = true
	}
	return s.submit(ctx, s.urgent, &request{ids: ids, mutate: m})
}

// Get returns the committed record of a machine and its view. It never waits
// for a commit.
func (s *Store) Get(id string) (machine.Record, []byte, bool) { return s.index.get(id) }

// Records calls yield with every machine of one consistent state, the longest
// unchanged first, until yield returns false.
func (s *Store) Records(yield func(machine.Record) bool) {
	for _, r := range s.index.records() {
		if !yield(*r) {
			return
		}
	}
}

// Record returns the committed record of a machine.
func (s *Store) Record(id string) (machine.Record, bool) {
	rec, _, ok := s.index.get(id)
	return rec, ok
}
