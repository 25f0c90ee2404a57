package machine

// HostLock ties a machine's token to the host that used it first, so that a
// token which somebody else got hold of opens nothing. It holds for one server:
// when the machine gets another, the lock that is on record is over.
type HostLock struct {
	Ref  string // the server at its cloud
	Host string // what the host identified itself by, as the channel condenses it
}

// LockedTo returns what the machine's host identified itself by, or "" when any
// host may still be the first.
func (r Record) LockedTo() string {
	if r.Lock == nil || r.Lock.Ref != r.serverRef() {
		return ""
	}
	return r.Lock.Host
}

// serverRef is the server that the machine has, or that its Create has ordered;
// "" when there is none.
func (r Record) serverRef() string {
	if r.Op != nil && r.Op.Kind == Create {
		return r.Op.Ref
	}
	return r.Host
}

// LockHost is the mutation that ties the token of a machine's life to a host, unless
// it is tied, the life is over, or the machine has no server to tie it to.
func LockHost(life, host string) Mutation {
	return func(cur Record) (Record, Change, error) {
		ref := cur.serverRef()
		if ref == "" || cur.LockedTo() != "" || !cur.in(life) {
			return cur, Unchanged, nil
		}
		next := cur.Clone()
		next.Lock = &HostLock{Ref: ref, Host: host}
		return next, Private, nil
	}
}

// UnlockHost is the mutation that lets another host be the first again.
func UnlockHost() Mutation {
	return func(cur Record) (Record, Change, error) {
		if cur.Lock == nil {
			return cur, Unchanged, nil
		}
		next := cur.Clone()
		next.Lock = nil
		return next, Private, nil
	}
}
