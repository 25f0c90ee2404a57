package hooks_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const k3sBlob = "server: https://10.0.0.1:6443\ntoken: K10abc::server:0123456789\n"

// newK3s is a host with a k3s that the image brought, and a systemd that starts
// it.
func newK3s(t *testing.T) *host {
	t.Helper()
	h := newHost(t, "k3s")
	h.write(t, "root/var/lib/rancher/k3s/agent/images/airgap.tar", "x", 0o600)
	h.write(t, "root/etc/rancher/k3s/config.yaml", "node-label: [a=b]\n", 0o600)
	h.write(t, "root/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", 0o600)
	h.write(t, "run/blob", k3sBlob, 0o600)
	h.tool(t, "systemctl", `case "$*" in
"cat k3s-agent.service") [ -e "$root/etc/systemd/system/k3s-agent.service" ] ;;
*" --now k3s-agent.service")
	[ "$1" = enable ] || exit 0
	mkdir -p "$root/var/lib/rancher/k3s/agent/containerd" "$root/etc/rancher/node" "$root/run/k3s"
	echo conf >"$root/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
	echo state >"$root/var/lib/rancher/k3s/agent/containerd/state"
	echo password >"$root/etc/rancher/node/password" ;;
esac`)
	return h
}

func TestK3sLife(t *testing.T) {
	h := newK3s(t)
	before := h.files(t)
	calls := h.must(t, "configure")
	if called(calls, "systemctl enable --now k3s-agent.service") != 1 || strings.Contains(strings.Join(calls, "\n"), "0123456789") {
		t.Errorf("calls: %q", calls)
	}
	if got := h.read(t, "root/etc/rancher/k3s/config.yaml.d/90-bigfleet-blob.yaml"); got != k3sBlob {
		t.Errorf("the blob's configuration: %s", got)
	}
	want := "node-name: \"node-1\"\nkubelet-arg+:\n- \"provider-id=scaleway://instance/fr-par-1/1234\"\n"
	if diff := cmp.Diff(want, h.read(t, "root/etc/rancher/k3s/config.yaml.d/91-bigfleet-node.yaml")); diff != "" {
		t.Error(diff)
	}
	if h.exists("run/blob.d") {
		t.Error("a copy of the blob stays")
	}
	if mode := h.mode(t, "root/etc/rancher/k3s/config.yaml.d/90-bigfleet-blob.yaml"); mode != 0o600 {
		t.Errorf("the token's file has mode %o", mode)
	}
	if !strings.Contains(h.read(t, "root/etc/systemd/system/k3s-agent.service"), "ExecStart="+h.dir+"/bin/k3s agent\n") {
		t.Error("the unit does not start k3s")
	}
	if calls := h.must(t, "ready"); calls[len(calls)-1] != "agent --kubeconfig "+h.root+"/var/lib/rancher/k3s/agent/kubelet.kubeconfig node ready" {
		t.Errorf("calls: %q", calls)
	}
	calls = h.must(t, "drain")
	order := []string{"systemctl start k3s-agent.service", "node drain", "node leave", "systemctl disable --now k3s-agent.service"}
	at := -1
	for _, want := range order {
		i := slices.IndexFunc(calls, func(c string) bool { return strings.HasSuffix(c, want) })
		if i <= at {
			t.Errorf("%q is not in its place: %q", want, calls)
		}
		at = i
	}
	after := slices.DeleteFunc(h.files(t), func(f string) bool { return f == "/etc/rancher/node/password" })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
	h.must(t, "drain") // again, after an interruption
	h.set("BIGFLEET_COMMAND_ID", "op-2")
	h.must(t, "configure")
}

func TestK3sBlobs(t *testing.T) {
	for blob, want := range map[string]string{
		"K3S_URL=https://a:6443\nK3S_TOKEN=K10::b\n":                            "server: \"https://a:6443\"\ntoken: \"K10::b\"\n",
		"# comment\nexport K3S_URL='https://[fd00::1]:6443'\r\nK3S_TOKEN=\"b\"": "server: \"https://[fd00::1]:6443\"\ntoken: \"b\"\n",
		"token: x\r\nserver: https://a\r\nnode-label: [c=d]\r\n":                "token: x\nserver: https://a\nnode-label:\n  - c=d\n",
		"\"server\": \"https://a\"\n\"token\": x\n":                             "\"server\": \"https://a\"\n\"token\": x\n",
		"K3S_URL=https://a\nK3S_TOKEN=aa+/bb==\n":                               "server: \"https://a\"\ntoken: \"aa+/bb==\"\n",
	} {
		h := newK3s(t)
		h.write(t, "run/blob", blob, 0o600)
		h.must(t, "configure")
		if diff := cmp.Diff(want, h.read(t, "root/etc/rancher/k3s/config.yaml.d/90-bigfleet-blob.yaml")); diff != "" {
			t.Errorf("%q:\n%s", blob, diff)
		}
	}
	for blob, why := range map[string]string{
		"":                              "empty",
		"#!/bin/sh\nreboot\n":           "neither",
		"server: https://a\n":           "neither",
		"K3S_URL=https://a\n":           "no K3S_TOKEN",
		"K3S_TOKEN=a\nK3S_URL=\n":       "no K3S_URL",
		"K3S_URL=x\nK3S_TOKEN=a\"\n":    "a quote",
		"K3S_URL=x\nK3S_TOKEN=$(id)\n":  "a shell would replace",
		"K3S_URL=x\nINSTALL_K3S_EXEC=y": "neither K3S_URL",
	} {
		h := newK3s(t)
		before := h.files(t)
		h.write(t, "run/blob", blob, 0o600)
		h.mustFail(t, "configure", why)
		if diff := cmp.Diff(before, h.files(t)); diff != "" || called(h.calls(), "systemctl enable") > 0 {
			t.Errorf("%q was begun: %s", blob, diff)
		}
	}
	h := newK3s(t)
	h.without(t, "k3s")
	h.mustFail(t, "configure", "k3s is not installed")
}

func TestK3sRunAgain(t *testing.T) {
	h := newK3s(t)
	h.must(t, "configure")
	if calls := h.must(t, "configure"); called(calls, "systemctl disable") > 0 || called(calls, "systemctl enable --now") != 1 {
		t.Errorf("the same command again: %q", calls)
	}
	h.set("BIGFLEET_COMMAND_ID", "op-2")
	h.write(t, "run/blob", "server: https://b\ntoken: c\n", 0o600)
	if calls := h.must(t, "configure"); called(calls, "systemctl disable --now k3s-agent.service") != 1 {
		t.Errorf("another cluster: %q", calls)
	}
	if got := h.read(t, "root/etc/rancher/k3s/config.yaml.d/90-bigfleet-blob.yaml"); got != "server: https://b\ntoken: c\n" {
		t.Errorf("the settings are the first cluster's: %s", got)
	}
	half := newK3s(t)
	half.write(t, "root/etc/systemd/system/k3s-agent.service", "[Service]", 0o600)
	half.write(t, "root/etc/rancher/k3s/config.yaml.d/90-bigfleet-blob.yaml", "half", 0o600)
	if calls := half.must(t, "configure"); called(calls, "systemctl enable --now") != 1 {
		t.Errorf("half configured: %q", calls)
	}
}

// The image's own unit is used and stays.
func TestK3sUnitOfTheImage(t *testing.T) {
	h := newK3s(t)
	h.write(t, "root/etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n", 0o600)
	h.must(t, "configure")
	h.must(t, "drain")
	if got := h.read(t, "root/etc/systemd/system/k3s-agent.service"); !strings.HasPrefix(got, "[Service]") {
		t.Errorf("the unit: %s", got)
	}
}

func TestK3sNotReady(t *testing.T) {
	h := newK3s(t)
	h.tool(t, "journalctl", "echo 'failed to validate token'")
	h.mustFail(t, "ready", "failed to validate token")
	h.must(t, "configure")
	h.tool(t, "agent", `echo 'provider id "k3s://node-1"' >&2; exit 1`)
	h.mustFail(t, "ready", "k3s://node-1")
	h.mustFail(t, "drain", "not empty")
	if called(h.calls(), "systemctl disable") > 0 {
		t.Error("the host was wiped")
	}
}

// Containers outlive k3s-agent.service; mounts come off before folders go.
func TestK3sWipesContainers(t *testing.T) {
	h := newK3s(t)
	h.must(t, "configure")
	shim, other := sleeper(t), sleeper(t)
	for pid, cmdline := range map[int]string{
		shim:  "/var/lib/rancher/k3s/data/0a/bin/containerd-shim-runc-v2\x00-address\x00/run/k3s/containerd/containerd.sock",
		other: "/usr/bin/containerd-shim-runc-v2\x00-address\x00/run/containerd/containerd.sock",
	} {
		h.write(t, fmt.Sprintf("root/proc/%d/comm", pid), "containerd-shim\n", 0o600)
		h.write(t, fmt.Sprintf("root/proc/%d/cmdline", pid), cmdline, 0o600)
	}
	h.write(t, "root/proc/self/mountinfo", `22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:1 / /run/k3s/a rw - tmpfs tmpfs rw
31 30 0:2 / /run/k3s/a/b rw - tmpfs tmpfs rw
32 22 0:3 / /var/lib/kubelet/pods/p/volume rw - nfs data:/x rw
33 22 0:4 net /run/netns/cni-1 rw - nsfs nsfs rw
34 22 0:5 net /run/netns/mine rw - nsfs nsfs rw
35 22 0:6 / /var/lib/kubelet/podsomething rw - tmpfs tmpfs rw
`, 0o600)
	calls := h.must(t, "drain")
	unmounted := slices.DeleteFunc(calls, func(c string) bool { return !strings.HasPrefix(c, "umount") })
	want := []string{"umount /run/k3s/a/b", "umount /run/k3s/a", "umount /var/lib/kubelet/pods/p/volume", "umount /run/netns/cni-1"}
	if diff := cmp.Diff(want, unmounted); diff != "" {
		t.Error(diff)
	}
	if running(shim) {
		t.Error("a container of the cluster lives")
	}
	if !running(other) {
		t.Error("a container of somebody else was killed")
	}
	// What cannot be unmounted is not deleted either: it may be data.
	h.set("BIGFLEET_COMMAND_ID", "op-2")
	h.must(t, "configure")
	h.write(t, "root/var/lib/kubelet/pods/p/volume/data", "x", 0o600)
	h.tool(t, "umount", "exit 32")
	h.mustFail(t, "drain", "cannot be unmounted")
	if !h.exists("root/var/lib/kubelet/pods/p/volume/data") {
		t.Error("a volume's data is gone")
	}
}

// sleeper is a process that is there until somebody kills it.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead: that is tested
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// running tells whether a child of this process has not ended.
func running(pid int) bool {
	var status syscall.WaitStatus
	ended, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	return err == nil && ended == 0
}
