package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestJoinScriptWaitsForItsRelease(t *testing.T) {
	j := run(t, "m1", "op1", func(j *joinScript) {
		await(t, func() bool { runs, err := j.begun(); return err == nil && len(runs) == 1 })
		if runs, err := j.ended(); err != nil || len(runs) != 0 {
			t.Errorf("ended before its release: %v, %v", runs, err)
		}
	})
	if err := j.ranOnce(map[string]string{"m1": "op1"}); err != nil {
		t.Error(err)
	}
}

func TestRanOnceTellsWhatIsWrong(t *testing.T) {
	const once = "begin m1 op1\nend m1 op1\n"
	for name, tt := range map[string]struct{ diary, want string }{
		"twice":           {once + once, "2 times the begin"},
		"not at all":      {"", "0 times the begin"},
		"no end":          {"begin m1 op1\n", "0 times the end"},
		"other operation": {"begin m1 op2\nend m1 op1\n", "under operation op2"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := newJoinScript(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(j.diary, []byte(tt.diary), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := j.ranOnce(map[string]string{"m1": "op1"}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ranOnce: %v, want %q in it", err, tt.want)
			}
		})
	}
}

// run runs the script as a host does, calls during while it waits, and releases
// it.
func run(t *testing.T, machine, command string, during func(*joinScript)) *joinScript {
	t.Helper()
	dir := t.TempDir()
	j, err := newJoinScript(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "blob")
	if err := os.WriteFile(path, j.blob(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", path)
	cmd.Env = append(os.Environ(), "BIGFLEET_MACHINE_ID="+machine, "BIGFLEET_COMMAND_ID="+command)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	during(j)
	if err := j.release(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return j
}

// await polls for a condition.
func await(t *testing.T, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatal("waited 20 s in vain")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
