package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

func TestFirstBytes(t *testing.T) {
	p := params(t, InstallImage)
	if out := render(t, p); !bytes.HasPrefix(out, []byte("#cloud-config\n")) {
		t.Errorf("without base: begins with %.40q", out)
	}
	p.Base = []byte("#!/bin/sh\n")
	if out := render(t, p); !bytes.HasPrefix(out, []byte("Content-Type: multipart/")) {
		t.Errorf("with base: begins with %.40q", out)
	}
}

// What editors and templates put in front must not change the result.
func TestBaseNormalised(t *testing.T) {
	const clean = "#cloud-config\npackages: [jq]\n"
	p := params(t, InstallImage)
	p.Base = []byte(clean)
	want := string(render(t, p))
	for name, base := range map[string]string{
		"BOM":           "\xef\xbb\xbf" + clean,
		"blank lines":   "\n \n\t\n" + clean,
		"CRLF":          strings.ReplaceAll(clean, "\n", "\r\n"),
		"all of it":     "\xef\xbb\xbf\r\n\r\n" + strings.ReplaceAll(clean, "\n", "\r\n"),
		"leading space": "  " + clean,
	} {
		p.Base = []byte(base)
		if diff := cmp.Diff(want, string(render(t, p))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	p.Base = []byte{}
	if out := render(t, p); !bytes.HasPrefix(out, []byte("#cloud-config\n")) {
		t.Errorf("empty base: begins with %.40q", out)
	}
}

func TestBaseRefused(t *testing.T) {
	const mixed = "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n"
	tests := []struct{ name, base, want string }{
		{"blank", "\n\n", "only blank lines"},
		{"document marker", "---\n#cloud-config\n", `begins with "---"`},
		{"space in header", "# cloud-config\n", `begins with "# cloud-config"`},
		{"no header", "packages: [jq]\n\nruncmd: []\n", `begins with "packages: [jq]"`},
		{"gzip", "\x1f\x8b\x08\x00\x00", "not UTF-8 text"},
		{"utf-16", "\xff\xfe#\x00", "not UTF-8 text"},
		{"nul", "#cloud-config\n\x00", "not UTF-8 text"},
		{"bad yaml", "#cloud-config\nruncmd: [\n", "#cloud-config: yaml"},
		{"not a mapping", "#cloud-config\n- a\n", "#cloud-config: yaml"},
		{"write_files empty", "#cloud-config\nwrite_files:\n", "write_files is not a list"},
		{"no boundary", "Content-Type: multipart/mixed\n\n--b\n", "without a boundary"},
		{"no parts", mixed + "--b--\n", "without parts"},
		{"no end", mixed + "--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n", "closing boundary"},
		{"bad part", mixed + "--b\nContent-Type: text/plain\n\n#cloud-config\nruncmd: [\n--b--\n", "MIME part 1: #cloud-config: yaml"},
		{"bad transfer encoding", mixed + "--b\nContent-Transfer-Encoding: binary\n\n#!\n--b--\n", `"binary"`},
		{"bad base64", mixed + "--b\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n!!!!\n--b--\n", "MIME part 1: Content-Transfer-Encoding base64"},
		{"nested too deep", nested(12), "nested"},
		{"bad part in a part", mixed + "--b\n" + nested(2) + "--b\nContent-Type: multipart/mixed; boundary=c\n--c\n\n#cloud-config\nwrite_files: {}\n--c--\n--b--\n", "MIME part 2: MIME part 1: #cloud-config: write_files"},
		{"indented", "Content-Type: multipart/mixed; boundary=b\n  \n  --b\n\n  #!/bin/sh\n  --b--\n", "no line begins with --b"},
		{"message in a message", mixed + "--b\nContent-Type: message/rfc822\n\nContent-Type: text/plain\n\nx\n--b--\n", "message/rfc822"},
		{"digest", "Content-Type: multipart/digest; boundary=b\n\n--b\n\nContent-Type: text/plain\n\nx\n--b--\n", "message/rfc822"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := params(t, InstallImage)
			p.Base = []byte(tt.base)
			_, err := Render(p)
			if err == nil || !strings.Contains(err.Error(), "base user data: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			if Check(p) == nil {
				t.Error("Check takes it")
			}
		})
	}
}

// nested is a multipart in a multipart and so on.
func nested(depth int) string {
	var begin, end string
	for i := range depth {
		begin += fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%02d\n\n--b%02d\n", i, i)
		end = fmt.Sprintf("--b%02d--\n", i) + end
	}
	return begin + "Content-Type: text/plain\n\nx\n" + end
}

func TestParamsRefused(t *testing.T) {
	_, err := Render(Params{
		Endpoint: "http://provider", CAPEM: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		MachineID: "a\nb", Token: "secret token", Install: InstallChannel,
		Packages: map[string]Package{"AMD64": {"../x.deb", "AA"}},
		Base:     []byte("?"),
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Endpoint: ", "is a PRIVATE KEY", "MachineID: ", "token: ", `architecture "AMD64"`, `File: "../x.deb"`, `SHA256: "AA"`, "base user data: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret token") {
		t.Errorf("the token is in:\n%v", err)
	}

	p := params(t, InstallAPT)
	p.APT = APT{URI: "ftp://x", Suite: "a b", Key: "\x99\x01"}
	p.Install = InstallAPT
	_, err = Render(p)
	for _, want := range []string{"APT.URI: ", "APT.Suite: ", "APT.Component: ", "APT.Key: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	p.Install = "snap"
	if _, err := Render(p); err == nil || !strings.Contains(err.Error(), `"snap" is unknown`) {
		t.Errorf("got %v", err)
	}
}

// The agent and the first boot's script get the endpoint in one form.
func TestEndpointIsNormalised(t *testing.T) {
	p := params(t, InstallChannel)
	want := string(render(t, p))
	p.Endpoint = "https://Provider.Example.:08443/"
	if diff := cmp.Diff(want, string(render(t, p))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Endpoint = "https://provider.example:0"
	if _, err := Render(p); err == nil || !strings.Contains(err.Error(), `Endpoint: port "0"`) {
		t.Errorf("port 0: %v", err)
	}
	p = params(t, InstallAPT)
	p.APT.URI = "https://packages.example:99999/debian"
	if _, err := Render(p); err == nil || !strings.Contains(err.Error(), `APT.URI: port "99999"`) {
		t.Errorf("APT: %v", err)
	}
}

func TestLimit(t *testing.T) {
	for _, base := range []string{"", "#!/bin/sh\n# ü, so that it is encoded\n" + strings.Repeat("x", 5000)} {
		p := params(t, InstallChannel)
		p.Base = []byte(base)
		p.Limit = 0
		size := len(render(t, p))
		for limit, fits := range map[int]bool{size - 1: false, size: true, size + 1: true} {
			p.Limit = limit
			_, err := Render(p)
			if (err == nil) != fits {
				t.Errorf("%d bytes, limit %d: %v", size, limit, err)
			}
		}
		p.Limit = size - 1
		_, err := Render(p)
		for _, want := range []string{strconv.Itoa(size) + " bytes", "limit is " + strconv.Itoa(size-1)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
	}
}

// Check must be at least as strict as Render for any machine.
func TestCheckAssumesTheWorst(t *testing.T) {
	p := params(t, InstallChannel)
	p.MachineID, p.Token = strings.Repeat(`"`, maxMachineID), strings.Repeat("/", maxToken)
	p.Limit = len(render(t, p))
	if err := Check(p); err != nil {
		t.Error(err)
	}
	p.Limit--
	if Check(p) == nil {
		t.Error("Check takes a limit that the longest id and token exceed")
	}
}

// The default rendering leaves nearly all of the room to the operator.
func TestSizeBudget(t *testing.T) {
	const budget = 16 << 10
	for _, install := range Installs() {
		if n := len(render(t, params(t, install))); n > budget {
			t.Errorf("%s: %d bytes, over the budget of %d", install, n, budget)
		}
	}
}

func TestWriteFiles(t *testing.T) {
	for _, install := range Installs() {
		t.Run(string(install), func(t *testing.T) {
			out := render(t, params(t, install))
			var doc document
			dec := yaml.NewDecoder(bytes.NewReader(out))
			dec.KnownFields(true)
			if err := dec.Decode(&doc); err != nil {
				t.Fatal(err)
			}
			for _, f := range doc.WriteFiles {
				if secret := strings.Contains(f.Content, testToken); secret != (f.Path == ConfigPath) {
					t.Errorf("%s: holds the token: %t", f.Path, secret)
				}
				if f.Path == ConfigPath && (f.Permissions != "0600" || f.Owner != "root:root") {
					t.Errorf("%s: %s %s", f.Path, f.Owner, f.Permissions)
				}
			}
			if n := strings.Count(string(out), testToken); n != 1 {
				t.Errorf("the token is there %d times", n)
			}
		})
	}
}

// Debian's /bin/sh is dash; one word of another shell stops the first boot.
func TestScriptsAreDashClean(t *testing.T) {
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("dash is not installed")
	}
	for _, install := range Installs() {
		path := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(path, []byte(script(t, params(t, install))), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(dash, "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", install, err, out)
		}
	}
}

// script is the install script of the rendered user data.
func script(t *testing.T, p Params) string {
	t.Helper()
	p.Base = nil
	var doc document
	if err := yaml.Unmarshal(render(t, p), &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.WriteFiles {
		if f.Path == installPath {
			return f.Content
		}
	}
	t.Fatal(errors.New("no install script"))
	return ""
}
