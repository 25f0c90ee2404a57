package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// childEnv makes the test binary a writer on the file it names, to be killed.
const childEnv = "STORE_TEST_CHILD"

// runChild writes from many goroutines and prints each acknowledged change, in
// a process that ends only by being killed.
func runChild() {
	path := os.Getenv(childEnv)
	if path == "" {
		return
	}
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for w := range 16 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("m-%d-%d", w, i%50)
				do := s.Do
				if i%2 == 1 {
					do = s.DoLater
				}
				rec, err := do(context.Background(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
					next := cur.Clone()
					next.State = machine.Idle
					next.Cluster = fmt.Sprint(i)
					next.Metadata = map[string]string{"k": strings.Repeat("v", i%3000)}
					return next, machine.Visible, nil
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				// One write a line, so that a kill cuts no line in two.
				if _, err := fmt.Fprintf(os.Stdout, "%s %d %s\n", id, rec.Revision, rec.Cluster); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

func TestKilledProcessLosesNothing(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	path := filepath.Join(t.TempDir(), "state")
	acked := map[string]uint64{}
	head := uint64(0)
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(150+rand.IntN(200))*time.Millisecond, func() {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		})
		revisions := map[uint64]bool{}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var id, cluster string
			var revision uint64
			if _, err := fmt.Sscan(lines.Text(), &id, &revision, &cluster); err != nil {
				t.Fatalf("line %q: %v", lines.Text(), err)
			}
			if revision <= head || revisions[revision] {
				t.Fatalf("round %d: revision %d was given out twice", round, revision)
			}
			revisions[revision] = true
			acked[id] = max(acked[id], revision)
		}
		kill.Stop()
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			t.Fatalf("the writer ended by itself: %v\n%s", err, &stderr)
		}
		if len(revisions) == 0 && round > 0 {
			t.Logf("round %d: killed before the first acknowledgement", round)
		}

		s, err := Open(Options{Path: path, View: view})
		if err != nil {
			t.Fatal(err)
		}
		for id, revision := range acked {
			rec, _, ok := s.Get(id)
			if !ok || rec.Revision < revision {
				t.Errorf("round %d: %s: revision %d was acknowledged, %d is there", round, id, revision, rec.Revision)
			}
		}
		head = s.Stats().Revision
		seen := map[uint64]bool{}
		s.Records(func(r machine.Record) bool {
			if seen[r.Revision] || r.Revision > head {
				t.Errorf("round %d: revision %d of %s", round, r.Revision, r.ID)
			}
			seen[r.Revision] = true
			return true
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged in any round")
	}
}
