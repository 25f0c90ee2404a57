package hooks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultScript(t *testing.T) {
	for name, blob := range map[string]string{
		"sh":                 "#!/bin/sh\necho ran >\"$dir/ran\"\n",
		"env":                "#!/usr/bin/env sh\necho ran >\"$dir/ran\"\n",
		"options":            "#!/bin/sh -e\necho ran >\"$dir/ran\"\n",
		"space and CR":       "#! /bin/sh \r\necho ran >\"$dir/ran\"\n",
		"no break at end":    "#!/bin/sh\necho ran >\"$dir/ran\"",
		"CRLF everywhere":    "#!/bin/sh\r\nset -eu\r\nif true; then\r\n  echo ran >\"$dir/ran\"\r\nfi\r\ncat <<END >\"$dir/lines\"\r\na\r\nEND\r\n",
		"CR at the end":      "#!/bin/sh\r\necho ran >\"$dir/ran\"\r",
		"BOM":                "\xef\xbb\xbf#!/bin/sh\necho ran >\"$dir/ran\"\n",
		"other cluster tool": "#!/bin/sh\nset -- a b\necho ran >\"$dir/ran\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "bootstrap")
			h.write(t, "run/blob", blob, 0o600) // not executable, as on a noexec tmpfs
			for range 2 {
				if out, ok := h.run(t, "configure"); !ok || !h.exists("ran") {
					t.Fatalf("the blob did not run: %s", out)
				}
				if h.exists("run/blob.d") || h.read(t, "run/blob") != blob {
					t.Error("a copy of the blob stays, or the blob was changed")
				}
			}
			if out, ok := h.run(t, "ready"); !ok {
				t.Errorf("not ready after success: %s", out)
			}
		})
	}
}

func TestDefaultRefusals(t *testing.T) {
	tests := map[string]struct{ blob, reason string }{
		"empty":                    {"", "empty"},
		"a kubeconfig":             {"apiVersion: v1\nsecret: s3cr3t-value\n", "neither a script"},
		"binary":                   {"\x7fELF\x00s3cr3t-value", "neither a script"},
		"blank line first":         {"\n#!/bin/sh\n", "neither a script"},
		"no interpreter":           {"#!\necho s3cr3t-value\n", "no interpreter"},
		"interpreter missing":      {"#!/no/such/shell\n", "not installed"},
		"failing script":           {"#!/bin/sh\nexit 7\n", ""},
		"cloud-config key":         {"#cloud-config\nbootcmd: [s3cr3t-value]\n", "bootcmd"},
		"cloud-config, no keys":    {"#cloud-config\n[s3cr3t-value]\n", "not a mapping"},
		"cloud-config, quoted key": {"#cloud-config\n\"bootcmd\": [s3cr3t-value]\n", "bootcmd"},
		"archive":                  {"#cloud-config-archive\n- s3cr3t-value\n", "not #cloud-config"},
		"UTF-16":                   {"\xff\xfe#\x00!\x00", "UTF-16"},
		"cloud-init fails":         {"#cloud-config\nruncmd: [s3cr3t-value]\n", "module runcmd failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "bootstrap")
			h.tool(t, "cloud-init", "exit 99")
			h.write(t, "run/blob", tt.blob, 0o600)
			out, ok := h.run(t, "configure")
			if ok || !strings.Contains(out, tt.reason) {
				t.Errorf("ok %t: %s", ok, out)
			}
			if strings.Contains(out, "s3cr3t-value") {
				t.Errorf("the blob is printed: %s", out)
			}
		})
	}
}

func TestDefaultCloudConfig(t *testing.T) {
	h := newHost(t, "bootstrap")
	h.write(t, "run/blob", "#cloud-config\r\nruncmd:\r\n  - ['true']\r\nwrite_files:\r\n- path: /x\r\npackage_update: true\r\n\"packages\": [curl]\r\n", 0o600)
	h.write(t, "root/var/lib/cloud/instance/scripts/other", "", 0o600)
	h.tool(t, "cloud-init", `cp "$2" "$dir/given"; case $* in *runcmd*) printf '#!/bin/sh\necho ran >"$dir/ran"\n' >"$root/var/lib/cloud/instance/scripts/runcmd" ;; esac`)
	if out, ok := h.run(t, "configure"); !ok || !h.exists("ran") || h.exists("root/var/lib/cloud/instance/scripts/runcmd") {
		t.Fatalf("ok %t: %s", ok, out)
	}
	// cloud-init reads what the agent understood, not what was sent.
	if got := h.read(t, "given"); strings.Contains(got, "\r") || !strings.Contains(got, "write_files:\n  - path: /x\n") {
		t.Errorf("cloud-init got: %s", got)
	}
	var modules []string
	for _, call := range h.calls() {
		modules = append(modules, strings.Fields(call)[5])
	}
	if got := strings.Join(modules, " "); got != "write_files package_update_upgrade_install runcmd" {
		t.Errorf("modules %q", got)
	}
	h.tool(t, "cloud-init", `printf 'exit 4\n' >"$root/var/lib/cloud/instance/scripts/runcmd"`)
	if out, ok := h.run(t, "configure"); ok || !strings.Contains(out, "runcmd failed") || h.exists("root/var/lib/cloud/instance/scripts/runcmd") {
		t.Errorf("a failed command passes: %s", out)
	}
}

func TestDefaultOperatorsVerbs(t *testing.T) {
	for _, verb := range []string{"ready", "drain"} {
		h := newHost(t, "bootstrap")
		h.write(t, "root/opt/bigfleet/"+verb, "#!/bin/sh\necho own; exit 5\n", 0o700)
		if out, ok := h.run(t, verb); ok || !strings.Contains(out, "own") {
			t.Errorf("%s: ok %t: %s", verb, ok, out)
		}
	}
}

func TestDefaultReady(t *testing.T) {
	for _, conf := range []string{"/etc/kubernetes/kubelet.conf", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"} {
		h := newHost(t, "bootstrap")
		h.write(t, "root"+conf, "x", 0o600)
		h.tool(t, "agent", `[ -z "$BIGFLEET_PROVIDER_ID$BIGFLEET_NODE_NAME" ]`)
		if diff := cmp.Diff([]string{"agent --kubeconfig " + h.root + conf + " node ready"}, h.must(t, "ready")); diff != "" {
			t.Error(diff)
		}
		h.tool(t, "agent", "echo Ready is False >&2; exit 1")
		h.mustFail(t, "ready", "Ready is False")
	}
}

// Who made the node knows how to remove it.
func TestDefaultDrainIsTheClusters(t *testing.T) {
	for tool, others := range map[string][]string{"kubeadm": {}, "k3s": {"kubeadm"}} {
		h := newHost(t, "bootstrap")
		for _, other := range others {
			h.without(t, other)
		}
		h.write(t, "hooks/"+tool, "#!/bin/sh\necho hook "+tool+" \"$*\" >>\"$dir/calls\"\n", 0o700)
		h.set("BIGFLEET_HOOKS_DIR", h.dir+"/hooks")
		if diff := cmp.Diff([]string{"hook " + tool + " drain"}, h.must(t, "drain")); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDefaultDrain(t *testing.T) {
	h := newHost(t, "bootstrap")
	h.without(t, "kubeadm")
	h.without(t, "k3s")
	h.write(t, "root/etc/kubernetes/kubelet.conf", "x", 0o600)
	h.write(t, "root/var/lib/kubelet/config.yaml", "x", 0o600)
	h.write(t, "root/etc/cni/net.d/10-image.conflist", "x", 0o600)
	h.tool(t, "agent", "echo pods are left >&2; exit 1")
	h.mustFail(t, "drain", "pods are left")
	if called(h.calls(), "systemctl") > 0 || !h.exists("root/etc/kubernetes/kubelet.conf") {
		t.Error("a node that is not empty was wiped")
	}
	h.tool(t, "agent", "")
	calls := h.must(t, "drain")
	order := []string{"node drain", "disable --now kubelet.service", "node leave"}
	for _, want := range order {
		i := slices.IndexFunc(calls, func(c string) bool { return strings.HasSuffix(c, want) })
		if i < 0 {
			t.Fatalf("%q is missing after its predecessor in %q", want, calls)
		}
		calls = calls[i+1:]
	}
	if diff := cmp.Diff([]string{"/etc/cni/net.d/10-image.conflist"}, h.files(t)); diff != "" {
		t.Error(diff)
	}
	for range 2 { // nothing is left to do
		if calls := h.must(t, "drain"); called(calls, "agent") > 0 {
			t.Errorf("calls: %q", calls)
		}
	}
}
