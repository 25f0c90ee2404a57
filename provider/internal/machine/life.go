package machine

// Life is one life of a machine's id, which comes to a new host in each: from a
// Create, or the adoption of a server, until the host is given back. A host proves
// itself by a token of its machine's life, so that one of an earlier life, which
// may still run, is refused.
type Life struct {
	// ID is the operation id of the life's Create.
	ID string
	// Plain says that the token without a life is the host's too: in the first life of
	// an id, in one that began under an earlier release, and where the system was put
	// there by hand.
	Plain bool
}

// Life returns the machine's present life; false while there is no host that may
// ask for anything: of a slot that is free, a Create that has not begun, a Delete
// from its acceptance on, whatever comes of it, and a failure of which nothing is left.
func (r Record) Life() (Life, bool) {
	switch r.State {
	case Unknown, Speculative, Deleting:
		return Life{}, false
	case Creating:
		if r.Op == nil || Untouched(r.Op) {
			return Life{}, false
		}
	case Failed:
		if r.Leftover == nil || r.History.Delete != "" {
			return Life{}, false
		}
	case Idle, Configuring, Configured, Draining:
	}
	return Life{ID: r.History.Create, Plain: !r.Bound}, true
}

// in says whether the machine is in the life of the given id.
func (r Record) in(life string) bool {
	now, ok := r.Life()
	return ok && now.ID == life
}
