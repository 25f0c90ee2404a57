package cloudinit

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	testMachine = "m-0123456789"
	testToken   = "dGhlIHRva2VuIG9mIHRoaXMgbWFjaGluZSwgMzIgYnk="
)

// testCA is any self-signed certificate; nothing is verified with it.
func testCA(t *testing.T) string {
	t.Helper()
	return string(readFile(t, "testdata/ca.pem"))
}

func params(t *testing.T, install Install) Params {
	t.Helper()
	p := Params{
		Endpoint: "https://provider.example:8443", CAPEM: testCA(t),
		MachineID: testMachine, Token: testToken,
		Install: install, Limit: ScalewayLimit,
	}
	switch install {
	case InstallChannel:
		p.Packages = map[string]Package{
			"amd64": {"bigfleet-agent_1.2.3_amd64.deb", "aa00000000000000000000000000000000000000000000000000000000000001"},
			"arm64": {"bigfleet-agent_1.2.3_arm64.deb", "aa00000000000000000000000000000000000000000000000000000000000002"},
		}
	case InstallAPT:
		p.APT = APT{
			URI: "https://packages.example/debian", Suite: "stable", Component: "main",
			Key: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZexample\n=kbx+\n-----END PGP PUBLIC KEY BLOCK-----\n",
		}
	case InstallImage:
	}
	return p
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func render(t *testing.T, p Params) []byte {
	t.Helper()
	out, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGolden(t *testing.T) {
	tests := []struct {
		name    string
		install Install
		base    string // file under testdata/base
	}{
		{"channel", InstallChannel, ""},
		{"apt", InstallAPT, ""},
		{"image", InstallImage, ""},
		{"channel-cloud-config", InstallChannel, "cloud-config"},
		{"image-script", InstallImage, "script"},
		{"image-include", InstallImage, "include"},
		{"image-multipart", InstallImage, "multipart"},
		{"image-utf8", InstallImage, "utf8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := params(t, tt.install)
			if tt.base != "" {
				p.Base = readFile(t, filepath.Join("testdata", "base", tt.base))
			}
			got := render(t, p)
			golden := filepath.Join("testdata", "golden", tt.name)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(readFile(t, golden)), string(got)); diff != "" {
				t.Errorf("user data changed (-want +got):\n%s", diff)
			}
			if again := render(t, p); !bytes.Equal(again, got) {
				t.Error("a second Render gave other bytes")
			}
			t.Logf("%d bytes", len(got))
		})
	}
}
