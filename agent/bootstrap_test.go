package agent_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ct "bigfleet-providers/agent/internal/channeltest"
)

// defaultHook runs the package's hook under dash, which is what /bin/sh is on
// Debian, with fakes for the tools that it calls.
type defaultHook struct {
	dir string
	env []string
}

func newDefaultHook(t *testing.T) *defaultHook {
	t.Helper()
	if _, err := exec.LookPath("dash"); err != nil {
		t.Skip("dash is not installed:", err)
	}
	h := &defaultHook{dir: t.TempDir()}
	for _, name := range []string{"bin", "opt", "scripts", "left"} {
		if err := os.Mkdir(filepath.Join(h.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.env = []string{
		"dir=" + h.dir, "PATH=" + filepath.Join(h.dir, "bin") + ":/usr/bin:/bin",
		"BIGFLEET_OPT_DIR=" + filepath.Join(h.dir, "opt"), "BIGFLEET_SCRIPTS_DIR=" + filepath.Join(h.dir, "scripts"),
		"BIGFLEET_KUBELET_CONF=" + filepath.Join(h.dir, "kubelet.conf"), "BIGFLEET_LEFTOVERS=" + filepath.Join(h.dir, "left"),
		"BIGFLEET_BLOB_FILE=" + filepath.Join(h.dir, "blob"), "BIGFLEET_NODE_NAME=node-1", "BIGFLEET_GRACE_SECONDS=1", "BIGFLEET_EVICT_PAUSE=0.05",
	}
	// The host's own must not be called.
	for _, tool := range []string{"cloud-init", "kubectl", "kubeadm", "systemctl"} {
		h.tool(t, tool, "exit 99")
	}
	h.tool(t, "systemctl", "exit 0")
	h.tool(t, "kubeadm", "exit 0")
	return h
}

func (h *defaultHook) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// tool replaces a program by a script that notes its calls first.
func (h *defaultHook) tool(t *testing.T, name, body string) {
	t.Helper()
	h.write(t, "bin/"+name, "#!/bin/sh\necho \""+name+" $*\" >>\"$dir/calls\"\n"+body+"\n", 0o700)
}

// run returns what the hook printed and whether it succeeded.
func (h *defaultHook) run(t *testing.T, args ...string) (stderr string, ok bool) {
	t.Helper()
	cmd := exec.Command("dash", append([]string{"../packaging/hooks/bootstrap"}, args...)...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

func (h *defaultHook) calls() string {
	body, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil {
		return ""
	}
	return string(body)
}

func (h *defaultHook) exists(name string) bool {
	_, err := os.Stat(filepath.Join(h.dir, name))
	return err == nil
}

func TestDefaultHookScript(t *testing.T) {
	for name, blob := range map[string]string{
		"sh":                 "#!/bin/sh\necho ran >\"$dir/ran\"\n",
		"env":                "#!/usr/bin/env sh\necho ran >\"$dir/ran\"\n",
		"options":            "#!/bin/sh -e\necho ran >\"$dir/ran\"\n",
		"space and CR":       "#! /bin/sh \r\necho ran >\"$dir/ran\"\n",
		"no break at end":    "#!/bin/sh\necho ran >\"$dir/ran\"",
		"other cluster tool": "#!/bin/sh\nset -- a b\necho ran >\"$dir/ran\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newDefaultHook(t)
			h.write(t, "blob", blob, 0o600) // not executable, as on a noexec tmpfs
			for range 2 {
				if out, ok := h.run(t, "configure"); !ok || !h.exists("ran") {
					t.Fatalf("the blob did not run: %s", out)
				}
			}
			if out, ok := h.run(t, "ready"); !ok {
				t.Errorf("not ready after success: %s", out)
			}
		})
	}
}

func TestDefaultHookRefusals(t *testing.T) {
	tests := map[string]struct{ blob, reason string }{
		"empty":                  {"", "empty"},
		"a kubeconfig":           {"apiVersion: v1\nsecret: s3cr3t-value\n", "neither a script"},
		"binary":                 {"\x7fELF\x00s3cr3t-value", "neither a script"},
		"blank line first":       {"\n#!/bin/sh\n", "neither a script"},
		"no interpreter":         {"#!\necho s3cr3t-value\n", "no interpreter"},
		"interpreter missing":    {"#!/no/such/shell\n", "not installed"},
		"failing script":         {"#!/bin/sh\nexit 7\n", ""},
		"cloud-config key":       {"#cloud-config\nbootcmd: [s3cr3t-value]\n", "bootcmd"},
		"cloud-config, no keys":  {"#cloud-config\n{runcmd: [s3cr3t-value]}\n", "no keys"},
		"cloud-init is too fail": {"#cloud-config\nruncmd: [s3cr3t-value]\n", "module runcmd failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newDefaultHook(t)
			h.write(t, "blob", tt.blob, 0o600)
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

func TestDefaultHookCloudConfig(t *testing.T) {
	h := newDefaultHook(t)
	h.write(t, "blob", "#cloud-config\r\nruncmd:\r\n  - [true]\r\nwrite_files:\r\n- path: /x\r\npackage_update: true\r\npackages: [curl]\r\n", 0o600)
	h.tool(t, "cloud-init", `case $* in *runcmd*) printf '#!/bin/sh\necho ran >"$dir/ran"\n' >"$dir/scripts/runcmd" ;; esac`)
	if out, ok := h.run(t, "configure"); !ok || !h.exists("ran") || h.exists("scripts/runcmd") {
		t.Fatalf("ok %t: %s", ok, out)
	}
	var modules []string
	for line := range strings.Lines(h.calls()) {
		modules = append(modules, strings.Fields(line)[5])
	}
	if got := strings.Join(modules, " "); got != "write_files package_update_upgrade_install runcmd" {
		t.Errorf("modules %q", got)
	}
	h.tool(t, "cloud-init", `printf 'exit 4\n' >"$dir/scripts/runcmd"`)
	if out, ok := h.run(t, "configure"); ok || !strings.Contains(out, "runcmd failed") || h.exists("scripts/runcmd") {
		t.Errorf("a failed command passes: %s", out)
	}
}

func TestDefaultHookOperatorsVerbs(t *testing.T) {
	for _, verb := range []string{"ready", "drain"} {
		h := newDefaultHook(t)
		h.write(t, "opt/"+verb, "#!/bin/sh\necho own; exit 5\n", 0o700)
		if out, ok := h.run(t, verb); ok || !strings.Contains(out, "own") {
			t.Errorf("%s: ok %t: %s", verb, ok, out)
		}
	}
}

func TestDefaultHookReady(t *testing.T) {
	for state, want := range map[string]bool{"True": true, "False": false, "Unknown": false, "": false} {
		h := newDefaultHook(t)
		h.write(t, "kubelet.conf", "", 0o600)
		h.tool(t, "kubectl", "printf %s '"+state+"'")
		if out, ok := h.run(t, "ready"); ok != want {
			t.Errorf("condition %q: ok %t: %s", state, ok, out)
		}
	}
}

// pods is a fake kubectl over a file of pods; an eviction removes its pod unless
// a budget forbids it.
const pods = `case $* in
*"get node"*) [ -e "$dir/gone" ] || echo node/node-1 ;;
*"get pods"*) cat "$dir/pods" ;;
*"create --raw"*)
	path=${*#*--raw }; path=${path%%/eviction*}; name=${path##*/}
	[ "$name" != guarded ] || { echo "Cannot evict pod as it would violate the pod's disruption budget." >&2; exit 1; }
	grep -v "/$name|" "$dir/pods" >"$dir/pods.new" || :
	mv "$dir/pods.new" "$dir/pods" ;;
*"delete pod"*) grep -v "/$8|" "$dir/pods" >"$dir/pods.new" || :; mv "$dir/pods.new" "$dir/pods" ;;
esac`

func TestDefaultHookDrain(t *testing.T) {
	const daemons = "kube-system/proxy|DaemonSet||Running\nkube-system/static|Node|0a1b|Running\nx/job|Job||Succeeded\n"
	tests := []struct {
		name, pods, grace string
		ok                bool
		want              []string // calls or output
		not               []string
	}{
		{"nothing runs", daemons, "1", true, []string{"cordon node-1", "disable --now kubelet", "kubeadm reset"}, []string{"eviction"}},
		{"workloads leave", daemons + "a/web|ReplicaSet||Running\nb/bare|||Running\n", "5", true,
			[]string{"/namespaces/a/pods/web/eviction", "/namespaces/b/pods/bare/eviction"}, []string{"pods/proxy", "pods/static", "pods/job"}},
		{"a budget forbids it", daemons + "a/guarded|ReplicaSet||Running\n", "1", false,
			[]string{"grace period is over", "a/guarded", "disruption budget"}, []string{"kubelet.service", "kubeadm reset"}},
		{"no grace", daemons + "a/guarded|ReplicaSet||Running\n", "0", true, []string{"delete pod --namespace a guarded --grace-period=0"}, []string{"/eviction"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newDefaultHook(t)
			h.env = append(h.env, "BIGFLEET_GRACE_SECONDS="+tt.grace)
			h.write(t, "kubelet.conf", "", 0o600)
			h.write(t, "pods", tt.pods, 0o600)
			h.tool(t, "kubectl", pods)
			out, ok := h.run(t, "drain")
			if ok != tt.ok || h.exists("left") == tt.ok {
				t.Errorf("ok %t, wiped %t: %s\n%s", ok, !h.exists("left"), out, h.calls())
			}
			for _, w := range tt.want {
				if !strings.Contains(out+h.calls(), w) {
					t.Errorf("%q is missing in %s\n%s", w, out, h.calls())
				}
			}
			for _, n := range tt.not {
				if strings.Contains(h.calls(), n) {
					t.Errorf("%q was called:\n%s", n, h.calls())
				}
			}
		})
	}
}

// Asked to stop at the command's deadline, it says what it was waiting for.
func TestDefaultHookDrainIsStopped(t *testing.T) {
	h := newDefaultHook(t)
	h.env = append(h.env, "BIGFLEET_GRACE_SECONDS=60", "BIGFLEET_EVICT_PAUSE=60", "TMPDIR="+filepath.Join(h.dir, "tmp"))
	h.write(t, "kubelet.conf", "", 0o600)
	h.write(t, "pods", "a/guarded|ReplicaSet||Running\n", 0o600)
	h.tool(t, "kubectl", pods)
	h.tool(t, "sleep", `echo >"$dir/sleeping"; exec /bin/sleep "$@"`)
	if err := os.Mkdir(filepath.Join(h.dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("dash", "../packaging/hooks/bootstrap", "drain")
	cmd.Env, cmd.Stdout, cmd.Stderr = h.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "the pause", func() bool { return h.exists("sleeping") })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a drain that was stopped succeeded")
	}
	for _, want := range []string{"pods are left: a/guarded", "disruption budget"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %s", want, out.String())
		}
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

func TestDefaultHookDrainAgain(t *testing.T) {
	h := newDefaultHook(t)
	h.write(t, "kubelet.conf", "", 0o600)
	h.write(t, "pods", "", 0o600)
	h.write(t, "gone", "", 0o600) // the node object was deleted
	h.tool(t, "kubectl", pods)
	for range 2 { // the second finds nothing left
		if out, ok := h.run(t, "drain"); !ok || strings.Contains(h.calls(), "cordon") {
			t.Errorf("ok %t: %s", ok, out)
		}
	}
	h.tool(t, "kubectl", "echo 'connection refused' >&2; exit 1")
	if out, ok := h.run(t, "drain"); ok || !strings.Contains(out, "cannot be asked") {
		t.Errorf("an unreachable cluster: ok %t: %s", ok, out)
	}
}

func TestDefaultHookUsage(t *testing.T) {
	h := newDefaultHook(t)
	for _, args := range [][]string{nil, {"reboot"}} {
		if out, ok := h.run(t, args...); ok || !strings.Contains(out, "usage") {
			t.Errorf("%q: ok %t: %s", args, ok, out)
		}
	}
}
