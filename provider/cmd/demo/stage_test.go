package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// act performs with programs that are scripts, and returns what was shown and the
// error.
func act(ctx context.Context, t *testing.T, programs map[string]string) (string, error) {
	t.Helper()
	bin, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	err = perform(ctx, options{bin: bin, machines: 2, timeout: time.Second, out: out})
	shown, readErr := os.ReadFile(out.Name())
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

func TestStageChecksItsOptions(t *testing.T) {
	for _, n := range []int{0, maxMachines + 1} {
		if _, err := build(options{machines: n}); err == nil || !strings.Contains(err.Error(), "want 1 to 20") {
			t.Errorf("%d machines: %v", n, err)
		}
	}
}
