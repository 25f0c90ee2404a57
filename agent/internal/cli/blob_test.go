package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBlobCommand(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "blob"), filepath.Join(dir, "out")
	read := func(kind, text string) (code int, stdout, stderr string) {
		t.Helper()
		if err := os.WriteFile(from, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		return invoke(t, "blob", kind, from, to)
	}
	t.Setenv("BIGFLEET_NODE_NAME", "node-1")
	t.Setenv("BIGFLEET_PROVIDER_ID", "test://1")
	t.Setenv("KUBEADM_API_VERSION", "kubeadm.k8s.io/v1beta4")
	for _, tt := range []struct{ kind, text, stdout, part string }{
		{"text", "a\r\n", "", "a\n"},
		{"cloud-config", "#cloud-config\nruncmd: [a]\npackages: [b]\n", "package_update_upgrade_install\nruncmd\n", "- b"},
		{"kubeadm", "kubeadm join a:1 --token b --discovery-token-ca-cert-hash c", "", "test://1"},
		{"k3s", "K3S_URL=a\nK3S_TOKEN=b", "", `token: "b"`},
	} {
		code, stdout, stderr := read(tt.kind, tt.text)
		out, err := os.ReadFile(to)
		if code != exitOK || stdout != tt.stdout || stderr != "" || err != nil || !strings.Contains(string(out), tt.part) {
			t.Errorf("%s: exit %d, %q, %q, %q, %v", tt.kind, code, stdout, stderr, out, err)
		}
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", tt.kind, info.Mode(), err)
		}
		for _, bad := range []struct{ text, why string }{{"", "empty"}, {" \r\n", "empty"}, {"\xff\xfea\x00", "UTF-16"}} {
			code, _, stderr := read(tt.kind, bad.text)
			if _, err := os.Stat(to); code != exitFault || !strings.Contains(stderr, bad.why) || err == nil {
				t.Errorf("%s of %q: exit %d, %s", tt.kind, bad.text, code, stderr)
			}
		}
	}
	if code, _, stderr := read("yaml", "a"); code != exitFault || !strings.Contains(stderr, "want: blob") {
		t.Errorf("unknown kind: exit %d, %s", code, stderr)
	}
	if code, _, stderr := invoke(t, "blob", "text", from); code != exitFault || !strings.Contains(stderr, "want: blob") {
		t.Errorf("no output: exit %d, %s", code, stderr)
	}
	t.Setenv("BIGFLEET_PROVIDER_ID", "")
	if code, _, stderr := read("kubeadm", "kubeadm join a:1"); code != exitFault || !strings.Contains(stderr, "BIGFLEET_PROVIDER_ID") {
		t.Errorf("without a provider id: exit %d, %s", code, stderr)
	}
}
