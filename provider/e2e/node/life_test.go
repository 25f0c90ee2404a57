package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/lifecycle"
)

// workload is a pod that takes two seconds to end, and leaves word of it on the
// host.
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: workload}
spec:
  selector: {matchLabels: {app: workload}}
  template:
    metadata: {labels: {app: workload}}
    spec:
      volumes:
      - {name: farewell, hostPath: {path: /var/lib/farewell, type: DirectoryOrCreate}}
      containers:
      - name: workload
        image: ` + image + `
        imagePullPolicy: Never
        args: [/farewell/ended]
        volumeMounts: [{name: farewell, mountPath: /farewell}]
`

const stepTime = 2 * time.Minute

// TestNode: a host joins a cluster, boots again, leaves, joins another cluster,
// leaves that one too, where it may not delete its Node, comes back and goes.
func TestNode(t *testing.T) {
	w := newWorld(t, map[string]string{networkFile: network})
	lap := hosttest.Laps(t)
	first, second := startCluster(t, w, "first", 0), startCluster(t, w, "second", 1)
	lap("two control planes")
	m := newProvider(t, w).Machine(t)
	m.Grace = 60
	lap("package, provider")
	m.Do(t, hosttest.Create, "")
	lap("Create, to IDLE")
	g := m.Guest(t)
	if status := g.AwaitBooted(t); !strings.Contains(status, "status: done") || g.Run(t, "cloud-id") != "scaleway" {
		t.Errorf("cloud-init says\n%s", status)
	}
	lap("cloud-init done")
	importImage(t, g)
	clean := footprint(t, g)
	first.apply(t, manifest(t))
	first.apply(t, workload)

	m.Cluster = first.name
	blob := first.joinBlob(t)
	join(t, m, first, blob)
	lap("Configure, to CONFIGURED")
	testNodeIs(t, m, first)
	testNoToken(t, g, blob)
	awaitWorkload(t, first)
	lap("pod runs")

	testReboot(t, m, g, first)
	lap("reboot, to Ready")

	m.Do(t, hosttest.Drain, "")
	lap("Drain, to IDLE")
	if nodes := first.nodes(t); len(nodes) > 0 {
		t.Errorf("after the drain the cluster has %+v", nodes)
	}
	if !g.Holds(t, "grep -q 'ended in order' /var/lib/farewell/ended") {
		t.Error("the pod did not have its time to end")
	}
	testClean(t, g, clean)

	m.Cluster = second.name
	join(t, m, second, second.configurationBlob(t))
	lap("Configure, other cluster")
	testNodeIs(t, m, second)
	second.apply(t, workload)
	awaitWorkload(t, second)
	lap("pod runs")
	m.Do(t, hosttest.Drain, "")
	lap("Drain, Node may stay")
	if n := second.node(t, lifecycle.NodeName(m.ID)); n.ready().Reason != "Drained" || !n.Spec.Unschedulable {
		t.Errorf("the Node that stays is %+v, want it cordoned and not Ready", n)
	}
	testClean(t, g, clean)

	join(t, m, second, second.joinBlob(t))
	lap("Configure, back again")
	testNodeIs(t, m, second)
	awaitWorkload(t, second)
	m.Do(t, hosttest.Drain, "")
	m.Do(t, hosttest.Delete, "")
	hosttest.Await(t, stepTime, "the server is gone", func() bool { return len(w.Cloud.Servers()) == 0 })
	lap("Drain and Delete")
}

// manifest is the one of docs/hooks.md that lets nodes leave for good.
func manifest(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(hosttest.Checkout(), "docs", "hooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "To let a drain delete the Node, apply this.")
	_, after, _ = strings.Cut(after, "```yaml\n")
	yaml, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/hooks.md has no such manifest")
	}
	return yaml
}

// join configures the machine, and holds that it is CONFIGURED only once the
// node is Ready.
func join(t *testing.T, m *hosttest.Machine, c *cluster, blob string) {
	t.Helper()
	m.Ask(t, hosttest.Configure, blob)
	m.Await(t, pb.MachineState_MACHINE_STATE_CONFIGURED, stepTime)
	if n := c.node(t, lifecycle.NodeName(m.ID)); n.ready().Status != "True" {
		t.Errorf("the machine is CONFIGURED and its node %+v", n)
	}
}

// testNodeIs looks whether the machine's node is the cluster's only one and says
// of itself what it has to.
func testNodeIs(t *testing.T, m *hosttest.Machine, c *cluster) {
	t.Helper()
	nodes := c.nodes(t)
	if len(nodes) != 1 {
		t.Fatalf("the cluster has %d nodes", len(nodes))
	}
	n, host := nodes[0], m.Get(t).GetHost().GetRef()
	if zone, id, _ := strings.Cut(host, "/"); zone != m.Get(t).GetZone() || id != m.Server(t) {
		t.Errorf("the machine's host is %q", host)
	}
	if want := "scaleway://instance/" + host; n.Spec.ProviderID != want {
		t.Errorf("the node's provider id is %q, want %q", n.Spec.ProviderID, want)
	}
	if want := lifecycle.NodeName(m.ID); n.Metadata.Name != want {
		t.Errorf("the node is named %q, want %q", n.Metadata.Name, want)
	}
	if n.Metadata.Labels["example.org/rack"] != "r7" {
		t.Errorf("the node's labels are %v, without the one of the operator's /etc/default/kubelet", n.Metadata.Labels)
	}
	if n.Spec.Unschedulable {
		t.Error("the node takes no pods")
	}
}

func awaitWorkload(t *testing.T, c *cluster) {
	t.Helper()
	hosttest.Await(t, stepTime, "the workload runs in "+c.name, func() bool { return len(running(c.pods(t))) > 0 })
}

// running are the pods that run.
func running(pods []pod) []pod {
	var out []pod
	for _, p := range pods {
		if p.running() {
			out = append(out, p)
		}
	}
	return out
}

// testReboot has the host boot again: node and pod come back as they were, and
// the machine does not change for a moment.
func testReboot(t *testing.T, m *hosttest.Machine, g *hosttest.Guest, c *cluster) {
	t.Helper()
	const hooksRan = "journalctl --boot --unit 'bigfleet-hook-*' --quiet"
	if g.Run(t, hooksRan) == "" {
		t.Error("the journal does not tell that the hook ran")
	}
	before := c.node(t, lifecycle.NodeName(m.ID))
	began := time.Now()
	g.Reboot(t)
	hosttest.Await(t, stepTime, "node and pod are back", func() bool {
		if state := m.Get(t).GetState(); state != pb.MachineState_MACHINE_STATE_CONFIGURED {
			t.Fatalf("while it boots the machine is %s", state)
		}
		ready, pods := c.node(t, before.Metadata.Name).ready(), running(c.pods(t))
		return ready.Status == "True" && ready.LastHeartbeatTime.After(began) && len(pods) == 1 && pods[0].restarts() > 0
	})
	if after := c.node(t, before.Metadata.Name); after.Metadata.UID != before.Metadata.UID {
		t.Error("after the reboot it is another node")
	}
	g.AwaitTrue(t, time.Minute, "systemctl is-active --quiet bigfleet-agent")
	if hooks := g.Run(t, hooksRan); hooks != "" {
		t.Errorf("after the reboot a hook ran:\n%s", hooks)
	}
}

var bootstrapToken = regexp.MustCompile(`[a-z0-9]{6}\.([a-z0-9]{16})`)

// testNoToken looks for the secret half of the blob's token on the host.
func testNoToken(t *testing.T, g *hosttest.Guest, blob string) {
	t.Helper()
	words := bootstrapToken.FindStringSubmatch(blob)
	if words == nil {
		t.Fatal("the blob has no token")
	}
	if found := g.Run(t, "grep -rlsF --devices=skip -e "+words[1]+" /etc /run /var /tmp /root || :"); found != "" {
		t.Errorf("the bootstrap token is in\n%s", found)
	}
}

// footprint is what of a cluster could be on a host.
func footprint(t *testing.T, g *hosttest.Guest) string {
	t.Helper()
	return g.Run(t, `
set -u
find /etc/kubernetes -type f 2>/dev/null
find /etc/cni /etc/systemd/system/kubelet.service.d /var/lib/cni /var/lib/kubelet /var/log/pods /var/log/containers -mindepth 1 2>/dev/null
grep -o ' /var/lib/kubelet/[^ ]*\| /run/netns/[^ ]*' /proc/self/mounts
ctr --namespace k8s.io containers list --quiet
ip -o link show | sed 's/^[0-9]*: \([^:@]*\).*/link \1/'
iptables-save | grep '^-A\|^:.*KUBE\|^:.*CNI'
ps -e -o comm= | grep -x 'kubelet\|pause\|containerd-shim.*'
systemctl is-enabled kubelet.service
systemctl list-units --all --plain --no-legend 'kubepods*' 'cri-containerd*' 'run-containerd*'
:`)
}

// testClean compares with the footprint from before the join.
func testClean(t *testing.T, g *hosttest.Guest, before string) {
	t.Helper()
	if after := footprint(t, g); after != before {
		t.Errorf("of the cluster is left on the host:\n%s\nit was before:\n%s", after, before)
	}
}
