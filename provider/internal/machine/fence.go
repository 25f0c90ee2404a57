package machine

// Fence is the fencing token of a mutating call: which shard sends it, in which
// of its reigns, as which of its calls.
type Fence struct {
	Shard    string
	Epoch    int64
	Sequence int64
}

// Empty says that the call carries no token and is not fenced.
func (f Fence) Empty() bool { return f == Fence{} }

// Mark is the newest token that was accepted from one shard for one machine.
type Mark struct {
	Epoch    int64
	Sequence int64
}

// Admits says whether the token is strictly newer than the mark: a higher
// epoch, or the same epoch and a higher sequence.
func (m Mark) Admits(f Fence) bool {
	if f.Epoch != m.Epoch {
		return f.Epoch > m.Epoch
	}
	return f.Sequence > m.Sequence
}
