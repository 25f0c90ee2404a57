package hooks_test

import (
	"slices"
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
	if !slices.ContainsFunc(calls, func(c string) bool { return strings.HasSuffix(c, " --node-name node-1") }) {
		t.Errorf("no node name: %q", calls)
	}
	if got := h.read(t, "root/etc/systemd/system/kubelet.service.d/90-bigfleet.env"); got != "KUBELET_EXTRA_ARGS=\"--provider-id=scaleway://instance/fr-par-1/1234\"\n" {
		t.Errorf("the kubelet's arguments: %s", got)
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

func TestKubeadmJoinFile(t *testing.T) {
	full := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  file: {kubeConfigPath: /x}\n"
	bare := `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: "10.0.0.1:6443"
    token: "abcdef.0123456789abcdef"
    unsafeSkipCAVerification: false
    caCertHashes:
    - "sha256:0011aabb"
`
	tests := map[string]struct{ blob, want string }{
		"line":          {joinLine, bare},
		"as printed":    {"# made for op-1\n\nkubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef \\\n\t--discovery-token-ca-cert-hash sha256:0011aabb \r\n", bare},
		"equals signs":  {"kubeadm join 10.0.0.1:6443 --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=sha256:0011aabb --node-name=other", bare},
		"configuration": {full, full},
		"quoted kind":   {strings.ReplaceAll(full, "JoinConfiguration", `"JoinConfiguration"`) + "\r\n", strings.ReplaceAll(full, "JoinConfiguration", `"JoinConfiguration"`) + "\n"},
		"more": {
			"kubeadm join [fd00::1]:6443 --token abcdef.0123456789abcdef --discovery-token-unsafe-skip-ca-verification --cri-socket unix:///run/containerd/containerd.sock --ignore-preflight-errors=Swap,SystemVerification",
			`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: "[fd00::1]:6443"
    token: "abcdef.0123456789abcdef"
    unsafeSkipCAVerification: true
nodeRegistration:
  criSocket: "unix:///run/containerd/containerd.sock"
  ignorePreflightErrors:
  - "Swap"
  - "SystemVerification"
`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newKubeadm(t)
			h.write(t, "run/blob", tt.blob, 0o600)
			h.must(t, "configure")
			if diff := cmp.Diff(tt.want, h.read(t, "join.yaml")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKubeadmRefusals(t *testing.T) {
	for blob, why := range map[string]string{
		"":                                     "empty",
		"#!/bin/sh\necho\necho":                "neither",
		"two lines\nof text":                   "neither",
		"kubeadm init":                         "neither",
		"kubeadm join --token abcdef.01234":    "no API server",
		"kubeadm join a:1 b:2":                 "two API servers",
		"kubeadm join a:1 --token":             "no value for --token",
		"kubeadm join a:1":                     "no --token",
		"kubeadm join a:1 --token t":           "no --discovery-token-ca-cert-hash",
		"kubeadm join a:1 --token $(reboot)":   "does not take",
		"kubeadm join a:1 --token a\"b":        "does not take",
		"kubeadm join a:1 --control-plane=yes": "does not know",
		"kubeadm join $(reboot):1 --token t --discovery-token-ca-cert-hash x": "no API server",
		"kubeadm join a;b:1 --token t --discovery-token-ca-cert-hash x":       "no API server",
	} {
		h := newKubeadm(t)
		h.write(t, "run/blob", blob, 0o600)
		h.mustFail(t, "configure", why)
		if calls := h.calls(); called(calls, "kubeadm join") > 0 || called(calls, "systemctl") > 0 {
			t.Errorf("%q: %q", blob, calls)
		}
	}
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

func TestKubeadmKeepsTheOperatorsArguments(t *testing.T) {
	for line, want := range map[string]string{
		"KUBELET_EXTRA_ARGS=--fail-cgroupv1=false":          "--fail-cgroupv1=false ",
		"KUBELET_EXTRA_ARGS=\"--v=2 --max-pods=50\"":        "--v=2 --max-pods=50 ",
		"KUBELET_EXTRA_ARGS=--v=1\nKUBELET_EXTRA_ARGS='-x'": "-x ",
		"# KUBELET_EXTRA_ARGS=--v=2":                        "",
		"KUBELET_EXTRA_ARGS=":                               "",
	} {
		h := newKubeadm(t)
		h.write(t, "root/etc/default/kubelet", line+"\n", 0o600)
		h.must(t, "configure")
		if got := h.read(t, "root/etc/systemd/system/kubelet.service.d/90-bigfleet.env"); got != "KUBELET_EXTRA_ARGS=\""+want+"--provider-id=scaleway://instance/fr-par-1/1234\"\n" {
			t.Errorf("%q: %s", line, got)
		}
		if h.read(t, "root/etc/default/kubelet") != line+"\n" {
			t.Error("the operator's file was changed")
		}
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
