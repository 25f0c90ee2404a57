package blob

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"a\nb\n":                     "a\nb\n",
		"a\r\nb\r":                   "a\nb",
		"a\rb\r\r\n":                 "a\rb\r\n", // only what ends a line
		"\xef\xbb\xbf#!/bin/sh\r\n":  "#!/bin/sh\n",
		"#!/bin/sh\npayload\x00\r\n": "#!/bin/sh\npayload\x00\r\n",
	} {
		if got, err := Text([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"\xff\xfe#\x00", "\xfe\xff\x00#"} {
		if got, err := Text([]byte(in)); err == nil {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestCloudConfig(t *testing.T) {
	for name, tt := range map[string]struct{ text, modules string }{
		"in the order of a boot":  {"runcmd: [a]\npackages: [b]\nwrite_files: []\nusers: [c]\napt: {d: e}\n", "users_groups write_files apt_configure package_update_upgrade_install runcmd"},
		"one module for several":  {"package_update: yes\npackage_upgrade: no\npackages: []\n", "package_update_upgrade_install"},
		"quoted keys":             {"\"packages\":\n- \"a\"\nruncmd:\n- b\n", "package_update_upgrade_install runcmd"},
		"single quotes":           {"'runcmd' : [a]\n", "runcmd"},
		"flow style":              {"{runcmd: [a], packages: [b]}\n", "package_update_upgrade_install runcmd"},
		"JSON":                    {`{"runcmd": [["a", "b"]]}`, "runcmd"},
		"over several lines":      {"{runcmd:\n  [a],\n packages: [b]}\n", "package_update_upgrade_install runcmd"},
		"an explicit key":         {"? runcmd\n: - a\n", "runcmd"},
		"one document":            {"---\nruncmd: [a]\n...\n", "runcmd"},
		"an anchor":               {"runcmd: &x [a]\nwrite_files:\n- {path: /a, content: &y b}\n- {path: /c, content: *y}\n", "write_files runcmd"},
		"CRLF":                    {"runcmd:\r\n- a\r\npackages:\r\n- b\r\n", "package_update_upgrade_install runcmd"},
		"files that wait":         {"write_files:\n- {path: /a, defer: true}\nruncmd: [a]\n", "write_files write_files_deferred runcmd"},
		"files that do not":       {"write_files:\n- {path: /a, defer: no}\n", "write_files"},
		"keys in a block of text": {"runcmd:\n- |\n  packages:\n  bootcmd:\n", "runcmd"},
	} {
		t.Run(name, func(t *testing.T) {
			modules, config, err := CloudConfig([]byte("#cloud-config\n" + tt.text))
			if got := strings.Join(modules, " "); err != nil || got != tt.modules {
				t.Fatalf("modules %q, %v; want %q", got, err, tt.modules)
			}
			var want, got any
			if err := yaml.Unmarshal([]byte(tt.text), &want); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(config, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(string(config), "#cloud-config\n") {
				t.Errorf("%s: %s", config, diff)
			}
		})
	}
}

// Whatever would not be applied is refused, and by name; all of it at once.
func TestCloudConfigRefusals(t *testing.T) {
	for text, wants := range map[string][]string{
		"#cloud-config\nbootcmd: [s3cr3t]\n\"ntp\": {}\nruncmd: [a]\n":                  {"bootcmd", "ntp"},
		"#cloud-config\n<<: {runcmd: [s3cr3t]}\n":                                       {"<<"},
		"#cloud-config\nx: &x {a: s3cr3t}\nruncmd: [a]\n":                               {"not apply: x"},
		"#cloud-config\nruncmd: [a]\nruncmd: [s3cr3t]\n":                                {"twice"},
		"#cloud-config\nruncmd: [a]\n\"runcmd\": [s3cr3t]\n":                            {"twice"},
		"#cloud-config\nruncmd: [a]\n---\npackages: [s3cr3t]\n":                         {"more than one YAML document"},
		"#cloud-config\nruncmd:\n\t- s3cr3t\n":                                          {"line"},
		"#cloud-config\nruncmd: s3cr3t\n":                                               {"runcmd: want a list"},
		"#cloud-config\nruncmd:\n":                                                      {"runcmd: want a list"},
		"#cloud-config\nruncmd: [{a: s3cr3t}]\n":                                        {"runcmd: want a list"},
		"#cloud-config\nwrite_files: {path: s3cr3t}\n":                                  {"write_files: want a list"},
		"#cloud-config\nwrite_files: [s3cr3t]\npackages: a\n":                           {"write_files: want a list", "packages: want a list"},
		"#cloud-config\npackage_update: [s3cr3t]\n":                                     {"package_update: want true or false"},
		"#cloud-config\nusers:\n":                                                       {"users: want a value"},
		"#cloud-config\nruncmd: !!python/name:s3cr3t x\n":                               {"a tag"},
		"#cloud-config\n- s3cr3t\n":                                                     {"not a mapping"},
		"#cloud-config\n":                                                               {"not a mapping"},
		"#cloud-config\n# runcmd: [s3cr3t]\n":                                           {"not a mapping"},
		"#cloud-config\nruncmd: " + strings.Repeat("[", 200) + strings.Repeat("]", 200): {"deep"},
		"#cloud-config\n? [s3cr3t]\n: a\n":                                              {"no scalar"},
		"#cloud-config-archive\n- s3cr3t\n":                                             {"first line"},
		"#cloud-configs3cr3t\nruncmd: [a]\n":                                            {"first line"},
	} {
		modules, _, err := CloudConfig([]byte(text))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: modules %q, %v; want %q", text, modules, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: the error quotes the blob: %v", text, err)
		}
	}
}

// Plain scalars are the reader's to understand: YAML 1.1 and 1.2 differ in some.
func TestScalarsStay(t *testing.T) {
	_, config, err := CloudConfig([]byte("#cloud-config\nwrite_files:\n- {permissions: 0644, defer: off, a: 12:30, b: 'yes', c: \"0644\", d: 1e3, e: ~, f: 2026-12-01}\n"))
	want := `#cloud-config
write_files:
  - permissions: 0644
    defer: off
    a: 12:30
    b: "yes"
    c: "0644"
    d: 1e3
    e: ~
    f: 2026-12-01
`
	if diff := cmp.Diff(want, string(config)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestK3s(t *testing.T) {
	const url = "K3S_URL=https://a:6443\n"
	for text, token := range map[string]string{
		url + "K3S_TOKEN=K10::server:b\n":                         "K10::server:b",
		url + "K3S_TOKEN=aa+/bb==\n":                              "aa+/bb==",
		url + "K3S_TOKEN=a!@#%^&*()-_=+[]{}<>:?;|~$b\n":           "a!@#%^&*()-_=+[]{}<>:?;|~$b",
		url + "K3S_TOKEN=\"a\\\"b$c\\\\\\$(d)\" # until noon\n":   `a"b$c\$(d)`,
		url + "K3S_TOKEN='a\"$(b) c'\n":                           `a"$(b) c`,
		url + "K3S_TOKEN=geheimnis-äöü\n":                         "geheimnis-äöü",
		"\xef\xbb\xbf# x\r\nexport\tK3S_TOKEN=b \r\n\r\n  " + url: "b",
		"export K3S_URL=https://a:6443\nK3S_TOKEN=b":              "b",
		"server: https://a:6443\ntoken: \"a+/=\\\"$(b)\"\n":       `a+/="$(b)`,
		"{\"server\": \"https://a:6443\", 'token': b}\r\n":        "b",
	} {
		got, err := K3s([]byte(text))
		var conf map[string]string
		if err == nil {
			err = yaml.Unmarshal(got, &conf)
		}
		if err != nil || conf["server"] != "https://a:6443" || conf["token"] != token || len(conf) != 2 {
			t.Errorf("%q: %q, %v; want the token %q", text, got, err, token)
		}
	}
	for text, why := range map[string]string{
		"#!/bin/sh\nreboot\n":                       "neither",
		"server: https://a\n":                       "no token",
		"server: https://a\ntoken:\n":               "no token",
		"server: https://a\ntoken: \"\"\n":          "no token",
		"token: s3cr3t\nserver: [a]\n":              "no server",
		"server: a\ntoken: s3cr3t\ntoken: b\n":      "twice",
		"server: a\ntoken: s3cr3t\n---\ntoken: b\n": "neither",
		url:                                              "no K3S_TOKEN",
		"K3S_TOKEN=s3cr3t\nK3S_URL=\n":                   "no K3S_URL",
		url + url + "K3S_TOKEN=s3cr3t\n":                 "K3S_URL twice",
		url + "INSTALL_K3S_EXEC=s3cr3t\n":                "line 2",
		url + "K3S_TOKEN=s3cr3t more\n":                  "a blank",
		url + "K3S_TOKEN=s3cr3t \\\n":                    "a blank",
		url + "K3S_TOKEN=a\"s3cr3t\n":                    "a quote",
		url + "K3S_TOKEN=\"s3cr3t\n":                     "not closed",
		url + "K3S_TOKEN=\"s3cr3t\"x\n":                  "behind the closing quote",
		url + "K3S_TOKEN=$(s3cr3t)\n":                    "a shell would replace",
		url + "K3S_TOKEN=\"${s3cr3t}\"\n":                "a shell would replace",
		url + "K3S_TOKEN=`s3cr3t`\n":                     "a shell would replace",
		url + "K3S_TOKEN=s3cr3t\x1b\n":                   "control character",
		"curl x | K3S_URL=a K3S_TOKEN=s3cr3t sh -\n":     "neither",
		"K3S_URL=https://a:6443 K3S_TOKEN=s3cr3t sh -\n": "a blank",
	} {
		if got, err := K3s([]byte(text)); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v, want %q; %s", text, err, why, got)
		}
	}
}

// FuzzBlob: whatever comes, nothing panics, and what is written is read again as
// the same.
func FuzzBlob(f *testing.F) {
	for _, seed := range []string{
		"#cloud-config\nruncmd: [a, 'b', |\n c]\n", "#cloud-config\n\"a\": &b {c: *b}\n", "K3S_URL=a\nK3S_TOKEN='b'\n",
		"server: a\ntoken: !!binary YQ==\n", "kubeadm join a:1 --token \"b\" --discovery-token-ca-cert-hash c\n",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {kubeletExtraArgs: []}\n", "a: \"\\0\\x07\\u2028 \"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, config, err := CloudConfig(body); err == nil {
			if _, again, err := CloudConfig(config); err != nil || !bytes.Equal(again, config) {
				t.Errorf("%q, and again %q, %v", config, again, err)
			}
		}
		if config, err := K3s(body); err == nil {
			if again, err := K3s(config); err != nil || !bytes.Equal(again, config) {
				t.Errorf("%q, and again %q, %v", config, again, err)
			}
		}
		if config, err := Join(body, node, v4); err == nil {
			if again, err := Join(config, node, v4); err != nil || !bytes.Equal(again, config) {
				t.Errorf("%q, and again %q, %v", config, again, err)
			}
		}
	})
}
