package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shell starts a shell script as a process whose log is in dir.
func shell(t *testing.T, dir, script string) *process {
	t.Helper()
	p, err := launch("script", "/bin/sh", filepath.Join(dir, "script.log"), os.Environ(), []string{"-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func TestProcessStops(t *testing.T) {
	p := shell(t, t.TempDir(), "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
	await(t, func() bool { return tail(p.log, 1) == "up" })
	if err := p.check(); err != nil {
		t.Errorf("check of a running process: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "with success") {
		t.Errorf("check of a process that is gone: %v, want its end to be told", err)
	}
}

func TestProcessThatStopsWithAnErrorIsTold(t *testing.T) {
	p := shell(t, t.TempDir(), "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done")
	await(t, func() bool { return tail(p.log, 1) == "up" })
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("stop: %v, want exit status 3", err)
	}
}

func TestStraysAreFoundWhoeverTheirParentIs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "hosts"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := shell(t, dir, "cd '"+filepath.Join(dir, "hosts")+"'; (sleep 60 & echo $!); echo up; exec sleep 60")
	await(t, func() bool { return tail(p.log, 1) == "up" })
	found, err := strays(filepath.Join(dir, "hosts"), p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("strays: %v, want the orphan alone", found)
	}
	orphan, err := os.FindProcess(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		left, err := strays(filepath.Join(dir, "hosts"), p.cmd.Process.Pid)
		return err == nil && len(left) == 0
	})
}

func TestFreePortsAreDistinct(t *testing.T) {
	addrs, err := freePorts(8)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(addrs)
	if n := len(slices.Compact(addrs)); n != 8 {
		t.Errorf("%d distinct addresses, want 8", n)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("1\n2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1: "3", 2: "2\n3", 9: "1\n2\n3"} {
		if got := tail(path, n); got != want {
			t.Errorf("tail %d: %q, want %q", n, got, want)
		}
	}
}
