package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/quotedprintable"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encodings are ways in which cloud-init takes the same cloud-config, each with
// one around it.
func encodings(t *testing.T) map[string]func(config string) string {
	t.Helper()
	zip := func(text string) string {
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	qp := func(text string) string {
		var buf bytes.Buffer
		w := quotedprintable.NewWriter(&buf)
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	multi := func(mediaType, encoding, body string) string {
		return fmt.Sprintf("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: %s\nContent-Transfer-Encoding: %s\n\n%s\n--b--\n", mediaType, encoding, body)
	}
	archive := func(entry map[string]any) string {
		text, err := json.Marshal([]any{entry})
		if err != nil {
			t.Fatal(err)
		}
		return "#cloud-config-archive\n" + string(text) + "\n"
	}
	return map[string]func(string) string{
		"plain":                 func(c string) string { return c },
		"part":                  func(c string) string { return multi("text/cloud-config", "7bit", c) },
		"part of no type":       func(c string) string { return multi("text/plain", "7bit", c) },
		"part called a script":  func(c string) string { return multi("text/x-shellscript", "7bit", c) },
		"part in capitals":      func(c string) string { return multi("Text/Cloud-Config; charset=utf-8", "BASE64", b64(c)) },
		"base64 part":           func(c string) string { return multi("text/cloud-config", "base64", b64(c)) },
		"quoted-printable part": func(c string) string { return multi("text/cloud-config", "quoted-printable", qp(c)) },
		"gzip part":             func(c string) string { return multi("application/gzip", "base64", b64(zip(c))) },
		"x-gzip part":           func(c string) string { return multi("application/x-gzip", "base64", b64(zip("\n"+c))) },
		"octets":                func(c string) string { return multi("application/octet-stream", "base64", b64(c)) },
		"alone":                 func(c string) string { return "Content-Type: text/cloud-config\nMIME-Version: 1.0\n\n" + c },
		"alone, no blank line":  func(c string) string { return "MIME-Version: 1.0\nContent-Type: text/cloud-config\n" + c },
		"archive":               func(c string) string { return archive(map[string]any{"type": "text/cloud-config", "content": c}) },
		"archive, type with a parameter": func(c string) string {
			return archive(map[string]any{"type": "Text/Cloud-Config; charset=utf-8", "content": c})
		},
		"archive, no type": func(c string) string { return archive(map[string]any{"content": c}) },
		"archive in a gzip part": func(c string) string {
			return multi("application/gzip", "base64", b64(zip(archive(map[string]any{"content": c}))))
		},
		"archive in a base64 part": func(c string) string {
			return multi("text/plain", "base64", b64(archive(map[string]any{"content": c})))
		},
		"template":                func(c string) string { return "## template: jinja\n" + c },
		"template in an archive":  func(c string) string { return archive(map[string]any{"content": "## template: jinja\n" + c}) },
		"template in a gzip part": func(c string) string { return multi("application/gzip", "base64", b64(zip("## template: jinja\n"+c))) },
		"template called jinja":   func(c string) string { return multi("text/jinja2", "7bit", "## template: jinja\n"+c) },
		"multipart in a multipart": func(c string) string {
			return strings.ReplaceAll(multi("multipart/mixed; boundary=c", "7bit", "--c\n\n"+c+"\n--c--"), "Content-Transfer-Encoding: 7bit\n", "")
		},
		"text that is no cloud-...": func(c string) string {
			return archive(map[string]any{"content": strings.TrimPrefix(c, "#cloud-config")})
		},
	}
}

// What takes ours along is found in whatever encoding, and what does not is not
// refused in any.
func TestBaseInEachEncoding(t *testing.T) {
	tests := []struct{ name, config, want string }{
		{"fine", "packages: [jq]\nwrite_files:\n- {path: /etc/x, content: y}\n", ""},
		{"a mapping", "write_files: {a: b}\n", "write_files is not a list"},
		{"text", "\"write_files\": /etc/x\n", "write_files is not a list"},
		{"nothing", "write_files:\n", "write_files is not a list"},
		{"our file", "write_files:\n- {path: /etc/x, content: y}\n- {path: //etc/../etc/bigfleet-agent/config.json, content: z}\n", "write_files: entry 2: "},
		{"an unknown tag", "runcmd: [!Sub 'a']\nwrite_files: []\n", "the tag !Sub"},
		{"a tag of Python's", "write_files: !!python/tuple [a]\n", "the tag !!python/tuple"},
		{"known tags", "write_files:\n- {path: !!str /etc/x, content: !!binary eQ==}\n", ""},
		{"both ours", "cloud_init_modules: [bootcmd, write-files]\ncloud_final_modules: [scripts-user]\n", ""},
		{"no scripts", "cloud_final_modules: [final-message, power-state-change]\n", "cloud_final_modules: lacks scripts-user"},
		{"no files", "cloud_init_modules: [bootcmd]\n", "cloud_init_modules: lacks write-files"},
	}
	for encoding, encode := range encodings(t) {
		for _, tt := range tests {
			t.Run(encoding+"/"+tt.name, func(t *testing.T) {
				p := params(t, InstallImage)
				p.Base = []byte(encode("#cloud-config\n" + tt.config))
				err := Check(p)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q, for\n%s", err, tt.want, p.Base)
				}
			})
		}
	}
}

func TestModuleLists(t *testing.T) {
	tests := []struct{ config, want string }{
		{"cloud_config_modules: []", ""},
		{"cloud_final_modules: [scripts_user]", ""},
		{"cloud_final_modules: [cc_scripts_user.py, [power-state-change, always]]", ""},
		{"cloud_final_modules: [[scripts-user, once-per-instance]]", ""},
		{"cloud_final_modules: [{name: scripts-user, frequency: once-per-instance}, null]", ""},
		{"cloud_final_modules: [[scripts-user, always]]", `cloud_final_modules: entry 1: scripts_user with the frequency "always"`},
		{"cloud_final_modules: [scripts-user, [scripts_user, always]]", `entry 2: scripts_user with the frequency "always"`},
		{"cloud_final_modules: [{name: cc_scripts_user, frequency: always}]", `frequency "always"`},
		{"cloud_final_modules: [[scripts-user, once]]", `frequency "once"`},
		{"cloud_final_modules: [scripts-per-boot]", "lacks scripts-user"},
		{"cloud_final_modules: []", "lacks scripts-user"},
		{"cloud_final_modules:", "cloud_final_modules: want a list"},
		{"cloud_final_modules: scripts-user", "cloud_final_modules: want a list"},
		{"cloud_final_modules: [3, scripts-user]", "entry 1: 3: want a module's name"},
		{"cloud_final_modules: [[scripts-user, null]]", "entry 1: "},
		{"cloud_init_modules: [[write-files, always]]", `cloud_init_modules: entry 1: write_files with the frequency "always"`},
		{"cloud_init_modules: [write-files, scripts-user]", "cloud_init_modules: entry 2: scripts_user belongs in cloud_final_modules"},
		{"cloud_init_modules: [write-files-deferred]", "lacks write-files"},
		{"cloud_config_modules: [runcmd, scripts-user]", "cloud_config_modules: entry 2: scripts_user belongs"},
		{"cloud_config_modules: [[write_files, always]]", "cloud_config_modules: entry 1: write_files with"},
	}
	for _, tt := range tests {
		p := params(t, InstallImage)
		p.Base = []byte("#cloud-config\n" + tt.config + "\n")
		if err := Check(p); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.config, err, tt.want)
		}
	}
	p := params(t, InstallImage)
	p.Base = []byte("#cloud-config\nwrite_files: {}\ncloud_init_modules: []\ncloud_final_modules: []\n")
	err := Check(p)
	for _, want := range []string{"write_files", "cloud_init_modules", "cloud_final_modules"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}

func TestJudged(t *testing.T) {
	gz := func(text string) string {
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) + "\n" }
	const template = "## template: jinja\n"
	tests := []struct{ name, base, want string }{
		{"template of a script", template + "#!/bin/sh\necho write_files: {{ v1.region }}\n", ""},
		{"template with files", template + "#cloud-config\nwrite_files:\n{% for x in y %}\n- path: /etc/{{ x }}\n  content: {{ x }}\n{% endfor %}\n", ""},
		{"template with branches", template + "#cloud-config\n{% if a %}\npackages: [a]\n{% else %}\npackages: [b]\n{% endif %}\n", ""},
		{"template whose files are an expression", template + "#cloud-config\nwrite_files: {{ files }}\n", "write_files is not a list"},
		{"template with files in a branch", template + "#cloud-config\n{% if a %}\nwrite_files: {}\n{% endif %}\n", "write_files is not a list"},
		{"template that cannot be read", template + "#cloud-config\n{{ a }}write_files: [\n", "jinja template"},
		{"two documents", "#cloud-config\npackages: [a]\n---\nwrite_files: {}\n", "more than one YAML document"},
		{"archive of none", "#cloud-config-archive\n", ""},
		{"archive that is a mapping", "#cloud-config-archive\ncontent: x\n", "#cloud-config-archive: yaml"},
		{"archive of a mapping", "#cloud-config-archive\n- content: {packages: [jq]}\n", "entry 1: content: want text"},
		{"archive of a number", "#cloud-config-archive\n- 1\n", "entry 1: want text"},
		{"archive of half a type", "#cloud-config-archive\n- {type: cloud-config, content: x}\n", `entry 1: type: "cloud-config"`},
		{"archive with a number for a header", "#cloud-config-archive\n- {x-a: 1, content: '#!/bin/sh'}\n", "entry 1: x-a: want text"},
		{"archive with a file name", "#cloud-config-archive\n- {filename: 1, launch-index: 2, content: '#!/bin/sh'}\n", ""},
		{"patch", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/packages\", \"value\": []}, {\"op\": \"add\", \"path\": \"/write_files/-\", \"value\": {}}]\n", ""},
		{"patch of a list", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/write_files\", \"value\": []}]\n", ""},
		{"patch of files", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/write_files\", \"value\": {}}]\n", `path "/write_files"`},
		{"patch of modules", "#cloud-config-jsonp\n[{\"op\": \"remove\", \"path\": \"/cloud_final_modules/0\"}]\n", `path "/cloud_final_modules/0"`},
		{"patch of all", "#cloud-config-jsonp\n[{\"op\": \"replace\", \"path\": \"\", \"value\": []}]\n", `path ""`},
		{"no patch", "#cloud-config-jsonp\nwrite_files: {}\n", "not a JSON patch"},
		{"gzip that is none", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: application/gzip\n\n#cloud-config\n--b--\n", "not gzip"},
		{"gzip in gzip", "Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n" + b64(gz(gz("#cloud-config\n"))), "unpacked once"},
		{"a message in gzip", "Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n" + b64(gz("Content-Type: text/cloud-config\n\npackages: []\n")), "unpacked once"},
		{"gzip that is not called so", "Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n" + b64(gz("#cloud-config\n")), "would not unpack"},
		{"gzip called octets", "Content-Type: application/octet-stream\nContent-Transfer-Encoding: base64\n\n" + b64(gz("#cloud-config\n")), "would not unpack"},
		{"archive with a tag", "#cloud-config-archive\n- !Ref a\n", "the tag !Ref"},
		{"patch of our file", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/write_files/-\", \"value\": {\"path\": \"/etc/bigfleet-agent/first-boot\"}}]\n", `path "/write_files/-"`},
		{"gzip that is cut off", "Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\nH4sIAAAA\n", "gzip: "},
		{"all faults", "Content-Type: multipart/mixed; boundary=b\n\n--b\n\n#cloud-config\nwrite_files: 1\n--b\nContent-Transfer-Encoding: binary\n\n#!\n--b--\n", "MIME part 2: Content-Transfer-Encoding"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := params(t, InstallImage)
			p.Base = []byte(tt.base)
			if err := Check(p); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	bomb := &bytes.Buffer{}
	w := gzip.NewWriter(bomb)
	if _, err := w.Write(make([]byte, maxUnpacked+1)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if err := judge("application/gzip", bomb.Bytes()); err == nil || !strings.Contains(err.Error(), "unpacked") {
		t.Errorf("a gzip bomb: %v", err)
	}
}

// mimes are messages that Python's parser reads and stricter ones do not.
var mimes = map[string]string{
	"no blank line before the first boundary": "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"==b==\"\n--==b==\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho one\n--==b==--\n",
	"unquoted boundary":                       "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary===b==\n\n--==b==\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho one\n--==b==--\n",
	"boundary of slashes":                     "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=//\n\n--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho one\n--//--\n",
	"line of a mailbox":                       "From nobody Tue Dec  1 10:00:00 2026\nContent-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho one\n--b--\n",
	"spaces behind boundaries":                "MIME-Version: 1.0\nContent-Type: multipart/mixed;\n boundary=\"a b\" ; charset=x\n\npreamble\n\n--a b \t\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho one\n--a b-- \nepilogue\n",
	"no blank line in a part":                 "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/x-shellscript\n#!/bin/sh\necho one: two\n--b\nContent-Type: text/cloud-config\n#cloud-config\npackages: [jq]\n--b--\n",
	"no header in a part":                     "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n#!/bin/sh\necho one\n--b\n\n#cloud-config\npackages: [jq]\n--b--\n",
	"a prefix of a boundary":                  "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--bb\n--b-\necho one\n--b--\n",
	"boundaries in a row":                     "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--b\n--b--\n",
	"folded, capitals, in another order":      "MIME-VERSION: 1.0\nX-A: b\nCONTENT-TYPE: MULTIPART/Mixed;\n\tcharset=utf-8;\n\tBOUNDARY=\"b\"\n\n--b\nCONTENT-TYPE:\n text/x-shellscript\ncontent-disposition: attachment; filename=\"one.sh\"\n\n#!/bin/sh\n--b--\n",
	"same boundary inside":                    "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=b2\n\n--b2\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--b2--\n--b\nContent-Type: text/cloud-config\n\npackages: [jq]\n--b--\n",
}

func TestLenientMIME(t *testing.T) {
	for name, base := range mimes {
		for _, text := range []string{base, strings.ReplaceAll(base, "\n", "\r\n"), strings.TrimSuffix(base, "\n")} {
			p := params(t, InstallImage)
			p.Base = []byte(text)
			if err := Check(p); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// What the real cloud-init makes of the operator's message alone is what it
// makes of it beside ours.
func TestRealCloudInitReadsMIME(t *testing.T) {
	requireCloudInit(t)
	for name, base := range mimes {
		t.Run(name, func(t *testing.T) {
			alone := process(t, []byte(base))
			p := params(t, InstallImage)
			p.Base = []byte(base)
			beside := process(t, render(t, p))
			delete(beside.Scripts, startName)
			if diff := cmp.Diff(alone.Scripts, beside.Scripts); diff != "" {
				t.Errorf("scripts (-alone +beside ours):\n%s", diff)
			}
			if diff := cmp.Diff(alone.Config.Packages, beside.Config.Packages); diff != "" {
				t.Errorf("packages (-alone +beside ours):\n%s", diff)
			}
			if len(beside.Config.WriteFiles) != 4 {
				t.Errorf("write_files: %v", beside.Config.WriteFiles)
			}
		})
	}
}
