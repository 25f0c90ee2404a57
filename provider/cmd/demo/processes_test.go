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

func TestHostProcessesAreFoundWhoeverTheirParentIs(t *testing.T) {
	s := &stage{dir: t.TempDir()}
	if err := s.killHosts(); err != nil {
		t.Errorf("killHosts with nothing to kill: %v", err)
	}
	host := s.path("hosts/1")
	p := shell(t, s.dir, "(BIGFLEET_FAKE_HOST='"+host+"' sleep 60 & BIGFLEET_FAKE_HOST='"+host+"-not' sleep 60 &); echo up; exec sleep 60")
	await(t, func() bool { return tail(p.log, 1) == "up" })
	await(t, func() bool { found, err := s.hosts(); return err == nil && len(found) == 2 })

	other := &stage{dir: t.TempDir()}
	if found, err := other.hosts(); err != nil || len(found) != 0 {
		t.Errorf("another play sees %v, %v", found, err)
	}
	if err := s.killHosts(); err == nil || !strings.Contains(err.Error(), "2 processes") {
		t.Errorf("killHosts: %v, want it to tell of 2 processes", err)
	}
	if found, err := s.hosts(); err != nil || len(found) != 0 {
		t.Errorf("after killHosts there are %v, %v", found, err)
	}
	if err := p.check(); err != nil {
		t.Errorf("a process that is on no host was killed: %v", err)
	}
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
