package cloudinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The proxy that the agent's unit reads is what the first boot fetches through.
func TestFirstBootProxy(t *testing.T) {
	if _, err := exec.LookPath("dash"); err != nil {
		t.Skip("dash is not installed")
	}
	for _, tt := range []struct{ name, file, want string }{
		{"plain", "HTTPS_PROXY=http://proxy:3128\n", "HTTPS_PROXY=http://proxy:3128\nhttps_proxy=http://proxy:3128\n"},
		{"quoted, no end of line", `https_proxy="http://proxy:3128"`, "https_proxy=http://proxy:3128\n"},
		{"among others", "# a note\n\nGOMEMLIMIT=9MiB\nNO_PROXY='10.0.0.0/8,.corp'\n", "NO_PROXY=10.0.0.0/8,.corp\nno_proxy=10.0.0.0/8,.corp\n"},
		{"no script", "HTTPS_PROXY=$(touch here)\ntouch here\nx y_PROXY=1\n", "HTTPS_PROXY=$(touch here)\nhttps_proxy=$(touch here)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			text := strings.ReplaceAll(script(t, params(t, InstallImage)), "/etc/default/bigfleet-agent", filepath.Join(dir, "default"))
			for name, content := range map[string]string{
				"first-boot": text, "default": tt.file,
				"systemctl": "#!/bin/sh\n[ \"$1\" != enable ] || env | grep -i '_proxy=' | LC_ALL=C sort >proxies\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("dash", "first-boot")
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "proxies"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("the environment (-want +got):\n%s", diff)
			}
			if _, err := os.Stat(filepath.Join(dir, "here")); err == nil {
				t.Error("the file was run as a script")
			}
		})
	}
}
