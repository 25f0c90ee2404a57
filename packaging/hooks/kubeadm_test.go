package hooks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const joinLine = "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:0011aabb\n"

// newKubeadm is a host with an image's CNI configuration and a kubeadm that
// leaves what the real one does.
func newKubeadm(t *testing.T) *host {
	t.Helper()
	h := newHost(t, "kubeadm")
	h.write(t, "root/etc/cni/net.d/10-image.conflist", "{}", 0o600)
	h.write(t, "run/blob", joinLine, 0o600)
	h.tool(t, "kubeadm", `case "$1" in
config) printf 'apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n' ;;
join)
	cp "$3" "$dir/join.yaml"
	mkdir -p "$root/etc/kubernetes/pki" "$root/var/lib/kubelet/pki" "$root/var/lib/cni/networks"
	echo token >"$root/etc/kubernetes/bootstrap-kubelet.conf"
	echo ca >"$root/etc/kubernetes/pki/ca.crt"
	echo config >"$root/var/lib/kubelet/config.yaml"
	[ ! -e "$dir/refuse" ] || { cat "$dir/refuse" >&2; rm "$dir/refuse"; exit 1; }
	echo conf >"$root/etc/kubernetes/kubelet.conf"
	echo flannel >"$root/etc/cni/net.d/05-flannel.conflist"
	echo 10.244.0.2 >"$root/var/lib/cni/networks/last" ;;
reset) rm -rf "$root/etc/kubernetes/kubelet.conf" "$root/etc/kubernetes/pki" "$root/var/lib/kubelet/config.yaml" ;;
esac`)
	return h
}

func TestKubeadmLife(t *testing.T) {
	h := newKubeadm(t)
	before := h.files(t)
	calls := h.must(t, "configure")
	if called(calls, "kubeadm join --config ") != 1 || called(calls, "kubeadm reset") != 0 {
		t.Errorf("calls: %q", calls)
	}
	if strings.Contains(strings.Join(calls, "\n"), "abcdef.0123456789abcdef") {
		t.Errorf("the token is on a command line: %q", calls)
	}
	if h.exists("root/etc/kubernetes/bootstrap-kubelet.conf") {
		t.Error("the bootstrap token stays on disk")
	}
	if out, ok := h.run(t, "ready"); !ok {
		t.Errorf("ready: %s", out)
	}
	if calls := h.calls(); calls[len(calls)-1] != "agent --kubeconfig "+h.root+"/etc/kubernetes/kubelet.conf node ready" {
		t.Errorf("calls: %q", calls)
	}
	calls = h.must(t, "drain")
	want := []string{"agent --kubeconfig " + h.root + "/etc/kubernetes/kubelet.conf node drain", "systemctl disable --now kubelet.service",
		"agent --kubeconfig " + h.root + "/etc/kubernetes/kubelet.conf node leave"}
	if diff := cmp.Diff(want, calls[:3]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, h.files(t)); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
	h.must(t, "drain") // again, after an interruption
	h.set("BIGFLEET_COMMAND_ID", "op-2")
	if calls := h.must(t, "configure"); called(calls, "kubeadm join") != 1 || called(calls, "kubeadm reset") != 0 {
		t.Errorf("the second cluster: %q", calls)
	}
}

// The line and the file end in one JoinConfiguration, with the node's name and
// provider id; what else they may say is tried in the agent's package blob.
func TestKubeadmJoinFile(t *testing.T) {
	const registered = `nodeRegistration:
  name: "node-1"
  kubeletExtraArgs:
    - name: "provider-id"
      value: "scaleway://instance/fr-par-1/1234"
`
	for name, tt := range map[string]struct{ blob, want string }{
		"line": {joinLine, `apiVersion: "kubeadm.k8s.io/v1beta4"
kind: "JoinConfiguration"
discovery:
  bootstrapToken:
    apiServerEndpoint: "10.0.0.1:6443"
    token: "abcdef.0123456789abcdef"
    caCertHashes:
      - "sha256:0011aabb"
` + registered},
		"configuration": {
			"apiVersion: kubeadm.k8s.io/v1beta4\r\nkind: JoinConfiguration\r\ndiscovery:\r\n  file: {kubeConfigPath: /x}\r\n",
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  file:\n    kubeConfigPath: /x\n" + registered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newKubeadm(t)
			h.write(t, "run/blob", tt.blob, 0o600)
			h.must(t, "configure")
			if diff := cmp.Diff(tt.want, h.read(t, "join.yaml")); diff != "" {
				t.Error(diff)
			}
			if h.exists("run/blob.d") {
				t.Error("a file with the token stays")
			}
		})
	}
}

func TestKubeadmRefusals(t *testing.T) {
	for blob, why := range map[string]string{
		"":                                     "empty",
		"#!/bin/sh\necho\necho":                "neither",
		"kubeadm init":                         "neither",
		"kubeadm join a:1 --token $(reboot)":   "a shell would act on",
		"kubeadm join a:1 --control-plane=yes": "does not know",
	} {
		h := newKubeadm(t)
		h.write(t, "run/blob", blob, 0o600)
		h.mustFail(t, "configure", why)
		if calls := h.calls(); called(calls, "kubeadm join") > 0 || called(calls, "systemctl") > 0 {
			t.Errorf("%q: %q", blob, calls)
		}
	}
	h := newKubeadm(t)
	h.tool(t, "kubeadm", "")
	h.mustFail(t, "configure", "names no apiVersion")
}

// What a run that was cut short left does not stop the next one.
func TestKubeadmRunAgain(t *testing.T) {
	t.Run("after the join", func(t *testing.T) {
		h := newKubeadm(t)
		h.must(t, "configure")
		h.set("BIGFLEET_ATTEMPT", "2")
		if calls := h.must(t, "configure"); called(calls, "kubeadm") > 0 || called(calls, "systemctl enable --now kubelet") != 1 {
			t.Errorf("calls: %q", calls)
		}
	})
	t.Run("half joined", func(t *testing.T) {
		h := newKubeadm(t)
		h.write(t, "root/etc/kubernetes/bigfleet-joined", "op-1\n", 0o600)
		h.write(t, "root/etc/kubernetes/bootstrap-kubelet.conf", "x", 0o600)
		h.write(t, "root/var/lib/kubelet/config.yaml", "x", 0o600)
		if calls := h.must(t, "configure"); called(calls, "kubeadm reset") != 1 || called(calls, "kubeadm join") != 1 {
			t.Errorf("calls: %q", calls)
		}
	})
	t.Run("in another cluster", func(t *testing.T) {
		h := newKubeadm(t)
		h.must(t, "configure")
		h.set("BIGFLEET_COMMAND_ID", "op-2")
		if calls := h.must(t, "configure"); called(calls, "kubeadm reset") != 1 || called(calls, "kubeadm join") != 1 {
			t.Errorf("calls: %q", calls)
		}
	})
	t.Run("by hand", func(t *testing.T) {
		h := newKubeadm(t)
		h.write(t, "root/etc/kubernetes/kubelet.conf", "x", 0o600)
		if calls := h.must(t, "configure"); called(calls, "kubeadm reset") != 1 {
			t.Errorf("calls: %q", calls)
		}
	})
}

func TestKubeadmJoinRefused(t *testing.T) {
	h := newKubeadm(t)
	h.write(t, "refuse", `error: a Node with name "node-1" and status "Ready" already exists in the cluster.`, 0o600)
	if calls := h.must(t, "configure"); called(calls, "kubeadm join") != 2 {
		t.Errorf("a node that is still there: %q", calls)
	}
	h = newKubeadm(t)
	h.write(t, "refuse", "error execution phase preflight: couldn't validate the identity of the API Server", 0o600)
	h.mustFail(t, "configure", "couldn't validate")
	if calls := h.calls(); called(calls, "kubeadm join") != 1 || called(calls, "systemctl disable --now kubelet") != 1 {
		t.Errorf("another reason: %q", calls)
	}
	if h.exists("root/etc/kubernetes/bootstrap-kubelet.conf") {
		t.Error("the token stays on disk")
	}
	h.must(t, "configure")
}

// What the operator gives to the kubelet is the operator's, in whatever file and
// form; the drop-in of an earlier release of this hook goes with the next wipe.
func TestKubeadmKeepsTheOperatorsArguments(t *testing.T) {
	h := newKubeadm(t)
	files := map[string]string{
		"root/etc/default/kubelet":                                "KUBELET_EXTRA_ARGS=--v=2 \\\n  --node-labels=\"a=b\"\n",
		"root/etc/sysconfig/kubelet":                              "KUBELET_EXTRA_ARGS='-x'",
		"root/etc/systemd/system/kubelet.service.d/20-cloud.conf": "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n",
	}
	for name, text := range files {
		h.write(t, name, text, 0o600)
	}
	before := h.files(t)
	check := func() {
		t.Helper()
		for name, text := range files {
			if got := h.read(t, name); got != text {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	h.must(t, "configure")
	check()
	if dir, err := os.ReadDir(filepath.Join(h.root, "etc/systemd/system/kubelet.service.d")); err != nil || len(dir) != 1 {
		t.Errorf("drop-ins: %v, %v", dir, err)
	}
	for _, name := range []string{"90-bigfleet.conf", "90-bigfleet.env"} {
		h.write(t, "root/etc/systemd/system/kubelet.service.d/"+name, "of an earlier release", 0o600)
	}
	h.must(t, "drain")
	check()
	if diff := cmp.Diff(before, h.files(t)); diff != "" {
		t.Error(diff)
	}
}

func TestKubeadmNotReady(t *testing.T) {
	h := newKubeadm(t)
	h.mustFail(t, "ready", "no credentials")
	h.must(t, "configure")
	h.tool(t, "agent", `echo "Ready is False: KubeletNotReady" >&2; exit 1`)
	h.mustFail(t, "ready", "KubeletNotReady")
}

func TestKubeadmDrainFails(t *testing.T) {
	for step, why := range map[string]string{"node drain": "not empty", "node leave": "does not leave"} {
		h := newKubeadm(t)
		h.must(t, "configure")
		h.tool(t, "agent", `case "$*" in *"`+step+`") echo no >&2; exit 1 ;; esac`)
		h.mustFail(t, "drain", why)
		if called(h.calls(), "kubeadm reset") > 0 {
			t.Error("the host was wiped")
		}
		h.tool(t, "agent", "")
		h.must(t, "drain")
	}
	for tool, body := range map[string]string{"systemctl": `[ "$1" != disable ]`, "kubeadm": `[ "$1" != reset ]`} {
		h := newKubeadm(t)
		h.must(t, "configure")
		h.tool(t, tool, body)
		if out, ok := h.run(t, "drain"); ok {
			t.Errorf("%s failed, the drain did not: %s", tool, out)
		}
	}
}

func TestKubeadmWipesTheNetwork(t *testing.T) {
	h := newKubeadm(t)
	h.must(t, "configure")
	h.tool(t, "ip", `[ "$*" != "-o link show" ] || printf '%s\n' '1: lo: <UP>' '2: eth0: <UP>' '3: cni0: <UP>' '4: veth1@if2: <UP>' '5: flannel.1: <UP>' '6: docker0: <UP>'`)
	h.tool(t, "iptables-save", `cat <<'END'
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE
-A POSTROUTING -m comment --comment "name: bridge" -j CNI-0123
COMMIT
END`)
	h.tool(t, "iptables-restore", `cat >"$dir/rules"`)
	h.tool(t, "ip6tables-save", `printf '*filter\n-A INPUT -j ACCEPT\nCOMMIT\n'`)
	calls := h.must(t, "drain")
	if called(calls, "ip link delete") != 2 || called(calls, "ip link delete cni0") != 1 || called(calls, "ip link delete flannel.1") != 1 {
		t.Errorf("calls: %q", calls)
	}
	want := "*nat\n:PREROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\nCOMMIT\n"
	if diff := cmp.Diff(want, h.read(t, "rules")); diff != "" {
		t.Error(diff)
	}
	if called(calls, "ip6tables-restore") > 0 {
		t.Error("rules that are not the cluster's were written")
	}
}

// A tool that is there and cannot work, as ip6tables where the kernel has no IPv6,
// keeps no host from being drained; one that cannot take the rules away does.
func TestWipeWithoutIPv6(t *testing.T) {
	for _, table := range []string{"iptables", "ip6tables"} {
		h := newKubeadm(t)
		h.must(t, "configure")
		h.tool(t, table+"-save", "echo 'Address family not supported by protocol' >&2; exit 1")
		other := map[string]string{"iptables": "ip6tables", "ip6tables": "iptables"}[table]
		h.tool(t, other+"-save", "printf '*nat\\n-A PREROUTING -j KUBE-SERVICES\\nCOMMIT\\n'")
		calls := h.must(t, "drain")
		if called(calls, other+"-restore") != 1 || called(calls, table+"-restore") != 0 {
			t.Errorf("%s fails: %q", table, calls)
		}
		h.must(t, "configure")
		h.tool(t, other+"-restore", "exit 1")
		h.mustFail(t, "drain", "network cannot be removed")
		for _, body := range []string{"kill -KILL $$", "echo '-A PREROUTING -j KUBE-SERVICES'; exit 1"} {
			h.tool(t, table+"-save", body)
			h.tool(t, other+"-restore", "cat >/dev/null")
			h.mustFail(t, "drain", table+"-save ended with status")
		}
	}
}
