package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent"
	"bigfleet-providers/cloudinit"
)

const (
	testMachine = "m-0123456789"
	testToken   = "dGhlIHRva2VuIG9mIHRoaXMgbWFjaGluZSwgMzIgYnk="
)

// userData renders what a provider would put on a server.
func userData(t *testing.T, p cloudinit.Params) []byte {
	t.Helper()
	if p.CAPEM == "" {
		ca, err := os.ReadFile("../../../../cloudinit/testdata/ca.pem")
		if err != nil {
			t.Fatal(err)
		}
		p.CAPEM = string(ca)
	}
	if p.Endpoint == "" {
		p.Endpoint = "https://provider.example:8443"
	}
	if p.MachineID == "" {
		p.MachineID = testMachine
	}
	p.Token, p.Install = testToken, cloudinit.InstallImage
	out, err := cloudinit.Render(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func paths(files []file) []string {
	var out []string
	for _, f := range files {
		out = append(out, f.path)
	}
	return out
}

// The golden files are what cloudinit.Render makes and what real cloud-init was
// shown to accept.
func TestReadSeedOfGoldenFiles(t *testing.T) {
	golden, err := filepath.Glob("../../../../cloudinit/testdata/golden/*")
	if err != nil || len(golden) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range golden {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := readSeed(data)
			if err != nil {
				t.Fatal(err)
			}
			if s.config.MachineID != testMachine || s.config.Token != testToken || s.config.Endpoint != "https://provider.example:8443" {
				t.Errorf("config: %+v", s.config)
			}
			i := slices.IndexFunc(s.files, func(f file) bool { return f.path == agent.DefaultConfigPath })
			if mode := s.files[i].mode; mode != 0o600 {
				t.Errorf("the config has mode %o", mode)
			}
			if include := strings.Contains(name, "include"); include != (len(s.passedBy) > 0) {
				t.Errorf("passed by: %q", s.passedBy)
			}
		})
	}
}

func TestReadSeedKeepsTheOperatorsFiles(t *testing.T) {
	base := "#cloud-config\nwrite_files:\n" +
		"  - {path: /etc/plain, content: \"a\\n\"}\n" +
		"  - {path: ../../etc/b64, encoding: b64, permissions: '0755', content: aGVsbG8=}\n" +
		"  - {path: /etc/gz, encoding: gz+b64, permissions: 0640, content: H4sIAAAAAAAA/8tIzcnJBwCGphA2BQAAAA==}\n" +
		"  - {path: /etc/plain, append: true, content: b}\n" +
		"runcmd: [exit 1]\n"
	s, err := readSeed(userData(t, cloudinit.Params{Base: []byte(base)}))
	if err != nil {
		t.Fatal(err)
	}
	got := s.files[len(s.files)-4:] // ours come first
	want := []file{
		{path: "/etc/plain", mode: 0o644, content: []byte("a\n")},
		{path: "/etc/b64", mode: 0o755, content: []byte("hello")},
		{path: "/etc/gz", mode: 0o640, content: []byte("hello")},
		{path: "/etc/plain", mode: 0o644, content: []byte("b"), append: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(file{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c, _ := s.content("/etc/plain"); string(c) != "a\nb" {
		t.Errorf("appended: %q", c)
	}
}

// What leaves a real server without an agent must do so here too.
func TestReadSeedFails(t *testing.T) {
	good := string(userData(t, cloudinit.Params{}))
	tests := []struct{ name, data, want string }{
		{"none", "", "no user data"},
		{"leading newline", "\n" + good, "nothing to act on"},
		{"BOM", "\xef\xbb\xbf" + good, "nothing to act on"},
		{"base64", "I2Nsb3VkLWNvbmZpZwo=", "nothing to act on"},
		{"bad yaml", "#cloud-config\nwrite_files: [\n", "nothing to act on: a cloud-config: yaml"},
		{"no files", "#cloud-config\npackages: [bigfleet-agent]\n", "writes no /etc/bigfleet-agent/config.json"},
		{"nothing starts it", strings.Split(good, "runcmd:")[0], "nothing in it starts bigfleet-agent"},
		{"config is not JSON", strings.Replace(good, `"endpoint": `, `"endpoint" `, 1), "is not the JSON"},
		{"config lacks a field", strings.Replace(good, `"token"`, `"tokem"`, 1), "token: missing"},
		{"config unreadable", "#cloud-config\nwrite_files: [{path: /etc/bigfleet-agent/config.json, encoding: b64, content: '!'}]\n", "illegal base64"},
		{"cut off", string(userData(t, cloudinit.Params{Base: []byte("#!/bin/sh\n")})[:700]), "MIME part"},
		{
			"later part drops the lists", "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\n" +
				"Content-Type: text/cloud-config\n\n" + good +
				"\n--b\nContent-Type: text/cloud-config\n\n#cloud-config\nwrite_files: []\n\n--b--\n",
			"writes no /etc/bigfleet-agent/config.json",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readSeed([]byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want it to say %q", err, tt.want)
			}
			if strings.Contains(err.Error(), testToken) {
				t.Errorf("the token is in %v", err)
			}
		})
	}
}

func TestSeedPathsStayClean(t *testing.T) {
	s, err := readUserData([]byte("#cloud-config\nwrite_files: [{path: ../../../etc/x}, {path: ''}, {content: y}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := s.files()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/etc/x"}, paths(files)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
