package cloudinit

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// processed is what the installed cloud-init makes of user data.
type processed struct {
	Parts []struct{ Type, Name string }
	// Config is the merged cloud-config.
	Config struct {
		WriteFiles []struct{ Path string } `json:"write_files"`
		RunCmd     []any
		Packages   []string
		Timezone   string
		Users      []any
	}
	Scripts map[string]string
	root    string // where the write_files are
}

func requireCloudInit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cloud-init"); err != nil {
		t.Skip("cloud-init is not installed: apt-get install cloud-init")
	}
	if os.Getuid() != 0 {
		t.Skip("cloud-init's write_files needs root to set owners")
	}
}

func process(t *testing.T, userData []byte) processed {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "user-data")
	if err := os.WriteFile(source, userData, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "testdata/process.py", source, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("cloud-init: %v\n%s", err, stderr.Bytes())
	}
	p := processed{root: filepath.Join(dir, "tree")}
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRealCloudInit(t *testing.T) {
	requireCloudInit(t)
	ours := []string{ConfigPath, installPath, resumePath, pendingPath}
	starts := "#!/bin/sh\n" + start([]file{{Path: ConfigPath}, {Path: installPath}, {Path: resumePath}, {Path: pendingPath}})
	tests := []struct {
		base     string
		files    []string
		packages []string
		runcmds  int
		scripts  []string // in the order in which they run
	}{
		{"", ours, nil, 1, nil},
		{"cloud-config", append(slices.Clone(ours), "/etc/motd", "/etc/sysctl.d/90-theirs.conf"), []string{"containerd", "jq"}, 2, []string{startName}},
		{"script", ours, nil, 0, []string{"part-001", startName}},
		{"multipart", append(slices.Clone(ours), "/etc/first", "/etc/second"), []string{"containerd", "jq"}, 2, []string{"theirs.sh", startName}},
		{"utf8", ours, nil, 1, []string{startName}},
		{"archive", append(slices.Clone(ours), "/etc/second"), []string{"jq"}, 1, []string{"part-003", startName}},
		{"single", ours, []string{"jq"}, 0, []string{startName}},
	}
	for _, tt := range tests {
		t.Run("base="+tt.base, func(t *testing.T) {
			p := params(t, InstallChannel)
			if tt.base != "" {
				p.Base = readFile(t, filepath.Join("testdata", "base", tt.base))
			}
			got := process(t, render(t, p))

			var files, scripts []string
			for _, f := range got.Config.WriteFiles {
				files = append(files, f.Path)
			}
			for name := range got.Scripts {
				scripts = append(scripts, name)
			}
			slices.Sort(scripts)
			if diff := cmp.Diff(tt.files, files); diff != "" {
				t.Errorf("write_files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.packages, got.Config.Packages); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.scripts, scripts); diff != "" {
				t.Errorf("scripts (-want +got):\n%s", diff)
			}
			if n := len(got.Config.RunCmd); n != tt.runcmds {
				t.Errorf("%d runcmd entries, want %d", n, tt.runcmds)
			}
			if tt.base != "" && got.Scripts[startName] != starts {
				t.Errorf("%s: %q", startName, got.Scripts[startName])
			}
			if slices.Compare([]string{"runcmd"}, []string{startName}) >= 0 {
				t.Errorf("%s runs before the operator's runcmd", startName)
			}

			info, err := os.Stat(got.root + ConfigPath)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %o", ConfigPath, info.Mode().Perm())
			}
			var config map[string]string
			if err := json.Unmarshal(readFile(t, got.root+ConfigPath), &config); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"endpoint": p.Endpoint, "ca_pem": p.CAPEM, "machine_id": p.MachineID, "token": p.Token}
			if diff := cmp.Diff(want, config); diff != "" {
				t.Errorf("agent config (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(script(t, p), string(readFile(t, got.root+installPath))); diff != "" {
				t.Errorf("install script (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCloudInitSchema(t *testing.T) {
	requireCloudInit(t)
	for _, install := range Installs() {
		p := params(t, install)
		files, err := p.files()
		if err != nil {
			t.Fatal(err)
		}
		part, err := document{MergeHow: mergeHow, WriteFiles: files}.render()
		if err != nil {
			t.Fatal(err)
		}
		for name, doc := range map[string][]byte{"alone": render(t, p), "part": part} {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, doc, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cloud-init", "schema", "--config-file", path).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", install, name, err, out)
			}
		}
	}
}
