package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ct "bigfleet-providers/agent/internal/channeltest"
)

const (
	maxResident = 15 << 10 // KiB
	idle        = 5 * time.Second
	// maxIdleCPU is 0.1 %, and the tick of the kernel's clock that is the least
	// that it counts.
	maxIdleCPU = idle/1000 + 10*time.Millisecond
	// maxWakeups bounds how often any thread of the agent wakes in that time.
	// Parked in a poll there is nothing to wake for; the runtime itself may a
	// few times.
	maxWakeups = 25
)

// An agent costs a host nearly nothing: memory after commands, time and wake-ups
// while it is parked in its poll.
func TestSizeAndQuiet(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.release(t)
	h.start(t)
	for i := range 40 { // garbage that stays would show by now
		id := "op-" + strconv.Itoa(i)
		h.server.Deliver(ct.Configure(id, strings.Repeat("join\n", 5000)))
		ct.Eventually(t, "ack of "+id, func() bool { return len(h.server.Acks()) > i })
	}
	h.waitSettled(t)
	pid := h.cmd.Process.Pid
	var (
		after   cost
		cpu     time.Duration
		wakeups int
	)
	// The quietest of three: on a busy machine the runtime's own threads wake more.
	for range 3 {
		before := usage(t, pid)
		time.Sleep(idle) // what is measured is that nothing happens
		after = usage(t, pid)
		cpu, wakeups = after.cpu-before.cpu, after.switches-before.switches
		t.Logf("resident %d KiB, idle CPU %s and %d wake-ups in %s", after.resident, cpu, wakeups, idle)
		if cpu <= maxIdleCPU && wakeups <= maxWakeups {
			break
		}
	}
	if after.resident > maxResident {
		t.Errorf("%d KiB are resident, the limit is %d", after.resident, maxResident)
	}
	if cpu > maxIdleCPU {
		t.Errorf("idle CPU %s in %s, the limit is %s", cpu, idle, maxIdleCPU)
	}
	if wakeups > maxWakeups {
		t.Errorf("%d wake-ups in %s, the limit is %d", wakeups, idle, maxWakeups)
	}
}

type cost struct {
	resident int // KiB
	cpu      time.Duration
	switches int // voluntary: each is a wake-up
}

// usage reads what a process has used, see proc_pid_status(5) and
// proc_pid_stat(5).
func usage(t *testing.T, pid int) cost {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", pid)
	c := cost{resident: field(t, filepath.Join(proc, "status"), "VmRSS:")}
	threads, err := filepath.Glob(filepath.Join(proc, "task", "*", "status"))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, path := range threads {
		c.switches += field(t, path, "voluntary_ctxt_switches:")
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, text := range fields[11:13] { // utime and stime, in ticks of 10 ms
		ticks, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		c.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return c
}

func field(t *testing.T, path, name string) int {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}
