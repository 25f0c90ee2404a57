package store

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"bigfleet-providers/provider/internal/machine"
)

// TestFullQueueRefuses holds the committer and fills the urgent queue: the next
// call is refused at once, nothing of it is done, and all queued ones go on.
func TestFullQueueRefuses(t *testing.T) {
	s, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	insert := func(cur machine.Record) (machine.Record, machine.Change, error) {
		cur.State = machine.Speculative
		return cur, machine.Visible, nil
	}
	results := make(chan error, urgentQueue+1)
	call := func(id string, m machine.Mutation) {
		_, err := s.Do(context.Background(), id, m)
		results <- err
	}
	go call("holder", func(cur machine.Record) (machine.Record, machine.Change, error) {
		close(held)
		<-release
		return insert(cur)
	})
	<-held
	for i := range urgentQueue {
		go call(string(rune('a'+i%26))+string(rune('0'+i/26)), insert)
	}
	for len(s.urgent) < urgentQueue {
		runtime.Gosched()
	}
	_, err = s.Do(context.Background(), "late", func(cur machine.Record) (machine.Record, machine.Change, error) {
		t.Error("a refused mutation ran")
		return insert(cur)
	})
	var refused *machine.Error
	if !errors.As(err, &refused) || refused.Code != machine.Exhausted {
		t.Errorf("past a full queue: %v", err)
	}
	close(release)
	for range urgentQueue + 1 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
