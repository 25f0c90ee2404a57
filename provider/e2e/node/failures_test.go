package node

import (
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/lifecycle"
)

// TestFailures: nodes whose image brings no CNI configuration register and are
// not Ready. So long the machine is CONFIGURING: until the cluster brings it, or
// until the deadline. In the meantime a pod takes longer to end than a drain has.
func TestFailures(t *testing.T) {
	w := newWorld(t, nil)
	lap := hosttest.Laps(t)
	c := startCluster(t, w, "only", 0)
	lap("control plane")
	const patience = time.Minute
	machines := newProvider(t, w, "--configure-timeout="+patience.String()).Machines(t, 2)
	late, never := machines[0], machines[1]
	lap("package, provider")
	late.Ask(t, hosttest.Create, "")
	never.Do(t, hosttest.Create, "")
	late.Await(t, pb.MachineState_MACHINE_STATE_IDLE, hosttest.CreateTime)
	lap("Create, twice")

	blob := c.joinBlob(t)
	late.Ask(t, hosttest.Configure, blob)
	never.Ask(t, hosttest.Configure, blob)
	asked := time.Now()
	for _, m := range machines {
		hosttest.Await(t, patience, "the node of "+m.ID+" is registered", func() bool {
			return c.node(t, lifecycle.NodeName(m.ID)).ready().Status == "False"
		})
	}
	lap("both registered")
	// Longer than the hook waits between two looks.
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		for _, m := range machines {
			if state := m.Get(t).GetState(); state != pb.MachineState_MACHINE_STATE_CONFIGURING {
				t.Fatalf("with a node that is not Ready the machine is %s", state)
			}
		}
	}
	late.Guest(t).Run(t, "cat >"+networkFile+" <<'END'\n"+network+"END")
	late.Await(t, pb.MachineState_MACHINE_STATE_CONFIGURED, patience)
	if ready := c.node(t, lifecycle.NodeName(late.ID)).ready(); ready.Status != "True" {
		t.Errorf("the machine is CONFIGURED and its node %+v", ready)
	}
	lap("one is Ready")
	testGraceIsOver(t, late, c)
	lap("its drain FAILED")

	failed := never.Await(t, pb.MachineState_MACHINE_STATE_FAILED, patience+30*time.Second)
	lap("the other FAILED")
	if took := time.Since(asked); took < patience-10*time.Second {
		t.Errorf("FAILED after %s of %s", took, patience)
	}
	for _, want := range []string{"Ready is False", "KubeletNotReady", "cni plugin not initialized"} {
		if !strings.Contains(failed.GetLastError(), want) {
			t.Errorf("last_error is %q, want %q in it", failed.GetLastError(), want)
		}
	}
}

// testGraceIsOver drains a node with a pod that has no time to end: the drain
// fails, and the host is not wiped under the pod.
func testGraceIsOver(t *testing.T, m *hosttest.Machine, c *cluster) {
	t.Helper()
	importImage(t, m.Guest(t))
	c.apply(t, workload)
	awaitWorkload(t, c)
	name := running(c.pods(t))[0].Metadata.Name
	m.Grace = 1
	m.Ask(t, hosttest.Drain, "")
	failed := m.Await(t, pb.MachineState_MACHINE_STATE_FAILED, stepTime)
	if want := "the grace period is over and 1 pods are left: default/" + name; !strings.Contains(failed.GetLastError(), want) {
		t.Errorf("last_error is %q, want %q in it", failed.GetLastError(), want)
	}
	if n := c.node(t, lifecycle.NodeName(m.ID)); n.ready().Status != "True" || !n.Spec.Unschedulable {
		t.Errorf("after a drain that failed the node is %+v, want it Ready and cordoned", n)
	}
}
