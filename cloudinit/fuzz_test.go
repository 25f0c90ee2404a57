package cloudinit

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// FuzzRender composes user data of any base and any machine id. What is
// accepted holds our part, once and whole, where cloud-init will find it, and
// fits; and Check, which is asked at start, has foreseen it.
func FuzzRender(f *testing.F) {
	for _, base := range []string{
		"", "#cloud-config\npackages: [jq]\n", "#!/bin/sh\necho é\n", "#include https://x.test/y\n", "## template: jinja\n#cloud-config\n{{ v1 }}\n",
		"#cloud-config\nwrite_files: {}\n", "#cloud-config\na: &a [*a]\n", "#cloud-config\nwrite_files:\n- {path: /etc/bigfleet-agent/config.json, content: x}\n",
		"Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: text/cloud-config\n\npackages: [jq]\n--b--\n",
		"Content-Type: text/x-shellscript\n\n#!/bin/sh\n", "Content-Type: multipart/mixed; boundary=\"bigfleet-x\"\n\n--bigfleet-x--\n",
		"\xef\xbb\xbf#cloud-config\r\n{}\r\n", "#cloud-config-archive\n- type: text/plain\n",
		"Content-Type: multipart/mixed; boundary===b==\n--==b==\nContent-Type: text/x-shellscript\n#!/bin/sh\n--==b==--\n",
		"#cloud-config\ncloud_final_modules: [[scripts-user, always], {name: x}]\n", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/a\"}]\n",
	} {
		f.Add([]byte(base), "m-1")
	}
	f.Add([]byte("#!/bin/sh\n"), `m"\'$(x)`)
	f.Fuzz(func(t *testing.T, base []byte, machine string) {
		p := params(t, InstallChannel)
		p.Base, p.MachineID = base, machine
		out, err := Render(p)
		if err != nil {
			if strings.Contains(err.Error(), testToken) {
				t.Errorf("the token is in %v", err)
			}
			return
		}
		size, sizeErr := Size(p)
		if len(out) > p.Limit || sizeErr == nil && len(out) > size {
			t.Errorf("%d bytes, the limit is %d, foreseen were %d (%v)", len(out), p.Limit, size, sizeErr)
		}
		if bytes.Count(out, []byte(testToken)) != 1+bytes.Count(base, []byte(testToken)) && !bytes.Contains(base, []byte(testToken[:8])) {
			t.Errorf("the token is there %d times", bytes.Count(out, []byte(testToken)))
		}
		var doc document
		if err := yaml.Unmarshal(ourPart(t, out), &doc); err != nil {
			t.Fatalf("our part is no YAML: %v", err)
		}
		if len(doc.WriteFiles) != 4 || doc.WriteFiles[0].Path != ConfigPath || doc.WriteFiles[0].Permissions != "0600" || !strings.Contains(doc.WriteFiles[0].Content, testToken) {
			t.Errorf("our part writes %+v", doc.WriteFiles)
		}
	})
}

// ourPart finds our cloud-config in user data as a MIME reader does.
func ourPart(t *testing.T, out []byte) []byte {
	t.Helper()
	if bytes.HasPrefix(out, []byte(header)) {
		return out
	}
	m, err := mail.ReadMessage(bytes.NewReader(out))
	if err != nil {
		t.Fatalf("no MIME message: %v", err)
	}
	_, how, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	var ours []byte
	r := multipart.NewReader(m.Body, how["boundary"])
	for n := 0; ; n++ {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			if n < 3 {
				t.Errorf("%d parts, want the operator's and our two", n)
			}
			return ours
		}
		if err != nil {
			t.Fatalf("part %d: %v", n, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("part %d: %v", n, err)
		}
		if p.FileName() == "bigfleet-agent.yaml" {
			ours = body // the last one, should the operator use the name
		}
	}
}
