package host

import (
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
)

// joinBlob is a blob that the default hook runs: it leaves a mark of the
// membership, and counts.
const joinBlob = `#!/bin/sh
set -eu
echo "$BIGFLEET_COMMAND_ID $BIGFLEET_ATTEMPT" >>/var/lib/joins
echo "$BIGFLEET_CLUSTER_ID" >/var/lib/member-of
`

// TestLife: a machine is created, joined, rebooted, drained and given back, and
// its host gets the agent from the channel.
func TestLife(t *testing.T) {
	t.Parallel()
	w := hosttest.NewWorld(t, hosttest.Options{})
	packages := t.TempDir()
	hosttest.AgentPackage(t, packages, release)
	p := w.NewProvider(t, hosttest.ProviderOptions{Install: "channel", Args: []string{"--agent-packages=" + packages}})
	m := p.Machine(t)
	lap := hosttest.Laps(t)

	m.Do(t, hosttest.Create, "")
	lap("Create")
	g := m.Guest(t)
	if status := g.AwaitBooted(t); !strings.Contains(status, "status: done") || g.Run(t, "cloud-id") != "scaleway" {
		t.Errorf("cloud-init says\n%s", status)
	}
	lap("cloud-init done")
	g.AwaitTrue(t, time.Minute, "systemctl is-system-running --quiet")

	m.Do(t, hosttest.Configure, joinBlob)
	lap("Configure")
	if got := g.Run(t, "cat /var/lib/member-of"); got != "c1" {
		t.Errorf("the host is a member of %q", got)
	}

	g.Reboot(t)
	lap("reboot")
	g.AwaitTrue(t, time.Minute, "systemctl is-active --quiet bigfleet-agent")
	if state := m.Get(t).GetState(); state != pb.MachineState_MACHINE_STATE_CONFIGURED {
		t.Errorf("after a reboot it is %s", state)
	}
	lap("agent is back")
	testIdle(t, g)
	lap("idle")

	m.Do(t, hosttest.Drain, "")
	lap("Drain")
	if joins := g.Run(t, "cat /var/lib/joins"); strings.Count(joins, "\n") != 0 {
		t.Errorf("joined more than once:\n%s", joins)
	}
	m.Do(t, hosttest.Delete, "")
	hosttest.Await(t, 30*time.Second, "the server is gone", func() bool { return len(w.Cloud.Servers()) == 0 })
	lap("Delete")
	if leaks := w.Cloud.Leaks(); len(leaks) > 0 {
		t.Errorf("left: %+v", leaks)
	}
}
