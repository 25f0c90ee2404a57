// Package journal remembers, across restarts of the agent, which commands were
// begun and how they ended, so that a hook is not run twice for one command and
// a result is reported until the provider has it.
//
// A record is written before its hook starts. It never holds the bootstrap
// blob.
package journal

import (
	"slices"
	"sync"
	"time"

	"bigfleet-providers/shared/command"
)

// Keep is how many commands a journal remembers. A host sees a handful in its
// life; the bound only keeps the file small.
const Keep = 64

// Record is what is known about one command.
type Record struct {
	// Command is the order as received, less its blob.
	Command command.Command `json:"command"`
	// Step is the hook's verb that was begun last.
	Step string `json:"step"`
	// Attempt counts the starts of the hook for this command, from 1.
	Attempt int `json:"attempt"`
	// Lost counts the runs that ended without a result, Reboots those of them that
	// a reboot of the host ended. Both are as of the start of the last run.
	Lost    int `json:"lost,omitempty"`
	Reboots int `json:"reboots,omitempty"`
	// BootID is the kernel's boot id at that start: in another boot nothing of
	// the hook can still run.
	BootID string `json:"boot_id"`
	// Deadline is the moment of the command's deadline in time since that boot:
	// the wall clock may be set while the command is in work.
	Deadline time.Duration `json:"deadline_since_boot_ns"`
	Started  time.Time     `json:"started"`
	// Ack is the result; nil while the command is unfinished.
	Ack *command.Ack `json:"ack,omitempty"`
	// Settled says that nobody waits for the result any more: the provider took
	// it, or has moved on.
	Settled bool `json:"settled,omitempty"`
}

// clone returns a copy that shares nothing with r and has no blob.
func (r Record) clone() Record {
	r.Command.Blob = nil
	if r.Ack != nil {
		ack := *r.Ack
		r.Ack = &ack
	}
	return r
}

// list is a bounded list of records, oldest first.
type list []Record

// with returns l with rec put in place of the record of the same command, or
// at the end. l itself is unchanged.
func (l list) with(rec Record) list {
	rec = rec.clone()
	out := slices.Clone(l)
	if i := out.index(rec.Command.CommandID); i >= 0 {
		out[i] = rec
		return out
	}
	out = append(out, rec)
	if len(out) <= Keep {
		return out
	}
	// The oldest goes first, those that nobody waits for before the others.
	drop := slices.IndexFunc(out, func(r Record) bool { return r.Settled })
	if drop < 0 || drop == len(out)-1 {
		drop = 0
	}
	return slices.Delete(out, drop, drop+1)
}

func (l list) index(commandID string) int {
	return slices.IndexFunc(l, func(r Record) bool { return r.Command.CommandID == commandID })
}

func (l list) get(commandID string) (Record, bool) {
	if i := l.index(commandID); i >= 0 {
		return l[i].clone(), true
	}
	return Record{}, false
}

func (l list) records() []Record {
	out := make([]Record, len(l))
	for i, r := range l {
		out[i] = r.clone()
	}
	return out
}

// Memory is a journal that lives as long as the process. Its zero value is an
// empty journal; all methods may be called from many goroutines.
type Memory struct {
	mu   sync.Mutex
	list list
}

// Get returns the record of the command.
func (m *Memory) Get(commandID string) (Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list.get(commandID)
}

// Records returns every record, oldest first.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list.records()
}

// Put stores rec in place of the record of the same command, if any. It always
// succeeds.
func (m *Memory) Put(rec Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = m.list.with(rec)
	return nil
}
