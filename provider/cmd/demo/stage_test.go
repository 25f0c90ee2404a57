package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// act performs with programs that are scripts, and returns what was said of the
// failure and the error.
func act(ctx context.Context, t *testing.T, programs map[string]string) (string, error) {
	t.Helper()
	bin, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	out, err1 := os.Create(filepath.Join(folder, "out"))
	errs, err2 := os.Create(filepath.Join(folder, "errs"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer errs.Close()
	err := perform(ctx, options{bin: bin, machines: 2, timeout: time.Second, out: out, errs: errs})
	shown, readErr := os.ReadFile(errs.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	if left, globErr := filepath.Glob(filepath.Join(temp, "*")); globErr != nil || (len(left) > 0) != strings.Contains(string(shown), "logs, state file") {
		t.Errorf("%v is left (%v), which the screen must tell:\n%s", left, globErr, shown)
	}
	return string(shown), err
}

func TestPerformTellsWhatDied(t *testing.T) {
	shown, err := act(t.Context(), t, map[string]string{"fakecloud": "echo no cloud today; exit 4"})
	if err == nil {
		t.Fatal("a play without a cloud succeeded")
	}
	for _, want := range []string{"fakecloud exited by itself (exit status 4)", "no cloud today", "fakecloud.log"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in what was shown:\n%s", want, shown)
		}
	}
	if strings.Count(shown, "exit status 4") != 1 {
		t.Errorf("the end of the fake cloud is told more than once:\n%s", shown)
	}
}

func TestPerformTellsOfMissingPrograms(t *testing.T) {
	if shown, err := act(t.Context(), t, nil); err == nil || !strings.Contains(shown, "make build") {
		t.Errorf("perform: %v, and shows no way out:\n%s", err, shown)
	}
}

func TestPerformKeepsItsTime(t *testing.T) {
	shown, err := act(t.Context(), t, map[string]string{"fakecloud": "exec sleep 60"})
	if err == nil || !strings.Contains(shown, "longer than 1s (--timeout)") {
		t.Errorf("perform: %v, want it to name its time limit:\n%s", err, shown)
	}
}

func TestInterruptedPerformLeavesNothing(t *testing.T) {
	ctx, interrupt := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer interrupt()
	shown, err := act(ctx, t, map[string]string{"fakecloud": "trap 'exit 0' TERM; while :; do sleep 0.05; done"})
	if err == nil || !strings.Contains(shown, "interrupted; everything that was started is stopped") {
		t.Errorf("perform: %v, want it to say that it was interrupted:\n%s", err, shown)
	}
}

// Where the reader has left, nothing is begun and nothing stays.
func TestPerformStopsWhenNobodyReads(t *testing.T) {
	reader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	bin := t.TempDir()
	script := "#!/bin/sh\nexec sleep 60"
	if err := os.WriteFile(filepath.Join(bin, "fakecloud"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	errs, err := os.Create(filepath.Join(bin, "errs"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	began := time.Now()
	err = perform(t.Context(), options{bin: bin, machines: 2, timeout: 30 * time.Second, out: out, errs: errs})
	if err == nil || !strings.Contains(err.Error(), "interrupted") || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v, want it to stop at once", time.Since(began), err)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 || err != nil {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestStageChecksItsOptions(t *testing.T) {
	for _, n := range []int{0, maxMachines + 1} {
		o := options{machines: n, timeout: time.Second}
		if err := o.check([]string{"nonsense"}); err == nil || !strings.Contains(err.Error(), "want 1 to 20") || !strings.Contains(err.Error(), `"nonsense"`) {
			t.Errorf("%d machines: %v", n, err)
		}
	}
}

// What configures another provider must not reach the demo's programs.
func TestProgramsGetAPlainEnvironment(t *testing.T) {
	t.Setenv("SCW_SECRET_KEY_FILE", "/somewhere")
	t.Setenv("BIGFLEET_BOOTSTRAP_SECRET_FILE", "/elsewhere")
	shown, err := act(t.Context(), t, map[string]string{"fakecloud": "env; exit 1"})
	if err == nil || !strings.Contains(shown, "PATH=") || strings.Contains(shown, "SCW_") || strings.Contains(shown, "BIGFLEET_") {
		t.Errorf("perform: %v, and its fake cloud got:\n%s", err, shown)
	}
}
