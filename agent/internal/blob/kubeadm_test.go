package blob

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var node = Node{Name: "node-1", ProviderID: "scaleway://instance/fr-par-1/1234"}

const (
	v3 = "kubeadm.k8s.io/v1beta3"
	v4 = "kubeadm.k8s.io/v1beta4"

	listed = `nodeRegistration:
  name: "node-1"
  kubeletExtraArgs:
    - name: "provider-id"
      value: "scaleway://instance/fr-par-1/1234"
`
	bare = `apiVersion: "kubeadm.k8s.io/v1beta4"
kind: "JoinConfiguration"
discovery:
  bootstrapToken:
    apiServerEndpoint: "10.0.0.1:6443"
    token: "abcdef.0123456789abcdef"
    caCertHashes:
      - "sha256:0011aabb"
` + listed
)

// The line as kubeadm prints it, and as people paste it.
func TestJoinLine(t *testing.T) {
	const line = "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:0011aabb"
	for name, text := range map[string]string{
		"as it is":         line + "\n",
		"no line end":      line,
		"CRLF":             line + "\r\n",
		"BOM":              "\xef\xbb\xbf" + line + "\n",
		"blank before":     "  \t" + line + "  \n\n",
		"comments":         "# made for op-1\n\n" + line + "\n# end\n",
		"comment behind":   line + " # until noon\n",
		"equals signs":     strings.NewReplacer("--token ", "--token=", "hash ", "hash=").Replace(line),
		"double quotes":    strings.Replace(line, "abcdef.0123456789abcdef", `"abcdef.0123456789abcdef"`, 1),
		"single quotes":    strings.Replace(line, "abcdef.0123456789abcdef", `'abcdef.0123456789abcdef'`, 1),
		"quoted, equals":   strings.Replace(line, "--token abcdef.0123456789abcdef", `--token="abcdef.0123456789abcdef"`, 1),
		"other order":      "kubeadm join --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:0011aabb 10.0.0.1:6443",
		"sudo":             "sudo " + line,
		"sudo with option": "sudo -E " + line,
		"path":             "/usr/bin/" + line,
		"prompt":           "$ " + line,
		"root's prompt":    "root@control-plane:~# " + line,
		"prompt and sudo":  "[admin@cp ~]$ sudo " + line,
		"continued":        strings.Replace(line, " --token", " \\\n\t--token", 1),
		"continued, CRLF":  strings.Replace(line, " --token", " \\\r\n\t--token", 1),
		"blanks behind it": strings.Replace(line, " --token", " \\  \n\t--token", 1),
		"with its prompt":  "$ " + strings.Replace(line, " --token", " \\\n> --token", 1),
		"continued to end": line + " \\\n",
		"node name":        line + " --node-name other",
		"klog above":       "W1201 10:00:00.000000   12345 version.go:104] could not fetch a Kubernetes version: x\n" + line,
		"warning above":    "WARNING: kubeadm cannot validate component configs for API groups [kubelet.config.k8s.io]\n" + line,
		"phase above":      "[WARNING Swap]: not this\n[preflight] Running\n" + line,
		"false":            line + " --discovery-token-unsafe-skip-ca-verification=false",
	} {
		t.Run(name, func(t *testing.T) {
			if name == "phase above" {
				text = strings.Replace(text, "[WARNING Swap]: not this\n", "[WARNING Swap] on\n", 1)
			}
			got, err := Join([]byte(text), node, v4)
			if diff := cmp.Diff(bare, string(got)); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestJoinLineOptions(t *testing.T) {
	got, err := Join([]byte("kubeadm join [fd00::1]:6443 --discovery-token a --tls-bootstrap-token 'b\"$c' --discovery-token-ca-cert-hash=1,2 --discovery-token-ca-cert-hash 3 --discovery-token-unsafe-skip-ca-verification --cri-socket unix:///run/c.sock --ignore-preflight-errors=Swap,Mem"), node, v3)
	want := `apiVersion: "kubeadm.k8s.io/v1beta3"
kind: "JoinConfiguration"
discovery:
  bootstrapToken:
    apiServerEndpoint: "[fd00::1]:6443"
    token: "a"
    caCertHashes:
      - "1"
      - "2"
      - "3"
    unsafeSkipCAVerification: true
  tlsBootstrapToken: "b\"$c"
nodeRegistration:
  criSocket: "unix:///run/c.sock"
  ignorePreflightErrors:
    - "Swap"
    - "Mem"
  name: "node-1"
  kubeletExtraArgs:
    provider-id: "scaleway://instance/fr-par-1/1234"
`
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestJoinLineRefusals(t *testing.T) {
	const good = "kubeadm join a:1 --token s3cr3t --discovery-token-ca-cert-hash x"
	for text, why := range map[string]string{
		"two lines\nof text":                          "see line 1",
		good + "\nkubectl apply -f x":                 "see line 2",
		good + "\n" + good:                            "two kubeadm join lines",
		"# " + good:                                   "neither",
		"kubeadm init --token s3cr3t":                 "neither",
		"kubeadm joined a:1":                          "neither",
		"export X=1; " + good:                         "neither",
		"kubeadm join --token s3cr3t":                 "no API server",
		"kubeadm join a --token s3cr3t":               "HOST:PORT",
		"kubeadm join a:1 b:2":                        "two API servers",
		"kubeadm join a:1 --token":                    "no value for --token",
		"kubeadm join a:1 --token=":                   "no value for --token",
		"kubeadm join a:1":                            "no --token",
		"kubeadm join a:1 --token s3cr3t":             "no --discovery-token-ca-cert-hash",
		good + " --token other":                       "--token twice",
		good + " --control-plane --v=5":               "does not know",
		good + " --token-x":                           "does not know: --token-x",
		good + " --dry-run":                           "does not know: --dry-run",
		good + " --cri-socket":                        "no value for --cri-socket",
		"kubeadm join a:0 --token s3cr3t":             "HOST:PORT",
		"kubeadm join a:99999 --token s3cr3t":         "HOST:PORT",
		"kubeadm join https://a:1 --token s3cr3t":     "HOST:PORT",
		"kubeadm join fd00::1:6443 --token s3cr3t":    "HOST:PORT",
		good + " && reboot":                           "a shell would act on",
		good + " | tee s3cr3t":                        "a shell would act on",
		"kubeadm join a:1 --token $(cat s3cr3t)":      "a shell would act on",
		"kubeadm join a:1 --token \"$TOKEN\"":         "a shell would act on",
		"kubeadm join a:1 --token `cat s3cr3t`":       "a shell would act on",
		"kubeadm join a:1 --token \"s3cr3t":           "not closed",
		"kubeadm join a:1 \u2013\u2013token s3cr3t":   "U+2013",
		"kubeadm join a:1 --token \u201cs3cr3t\u201d": "U+201C",
		"kubeadm join\u00a0a:1 --token s3cr3t":        "neither",
	} {
		got, err := Join([]byte(text), node, v4)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q; %s", text, err, why, got)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: the error quotes the blob: %v", text, err)
		}
	}
	if _, err := Join([]byte(good), node, ""); err == nil || !strings.Contains(err.Error(), "names no apiVersion") {
		t.Errorf("without a version: %v", err)
	}
}

func TestJoinConfiguration(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"plain": {
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration # x\ndiscovery:\n  file: {kubeConfigPath: /x}\n",
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  file:\n    kubeConfigPath: /x\n" + listed,
		},
		"every key quoted, CRLF, BOM": {
			"\xef\xbb\xbf\"apiVersion\": \"kubeadm.k8s.io/v1beta3\"\r\n\"kind\": \"JoinConfiguration\"\r\n\"nodeRegistration\":\r\n  \"kubeletExtraArgs\":\r\n    \"provider-id\": \"x\"\r\n    \"v\": \"2\"\r\n  \"name\": \"y\"\r\n",
			"\"apiVersion\": \"kubeadm.k8s.io/v1beta3\"\n\"kind\": \"JoinConfiguration\"\n\"nodeRegistration\":\n  \"kubeletExtraArgs\":\n    \"provider-id\": \"scaleway://instance/fr-par-1/1234\"\n    \"v\": \"2\"\n  \"name\": \"node-1\"\n",
		},
		"JSON": {
			`{"kind":"JoinConfiguration","apiVersion":"kubeadm.k8s.io/v1beta4"}`,
			"\"kind\": \"JoinConfiguration\"\n\"apiVersion\": \"kubeadm.k8s.io/v1beta4\"\n" + listed,
		},
		"arguments in a list": {
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs: [{name: provider-id, value: x}, {name: hostname-override, value: y}, {name: v, value: '2'}]\n",
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    - name: v\n      value: \"2\"\n    - name: \"provider-id\"\n      value: \"scaleway://instance/fr-par-1/1234\"\n  name: \"node-1\"\n",
		},
		"another name in a mapping": {
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs: {hostname-override: y}\n",
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    hostname-override: \"node-1\"\n    provider-id: \"scaleway://instance/fr-par-1/1234\"\n  name: \"node-1\"\n",
		},
		"empty registration": {
			"---\napiVersion: kubeadm.k8s.io/v1beta2\nkind: JoinConfiguration\nnodeRegistration:\n",
			"apiVersion: kubeadm.k8s.io/v1beta2\nkind: JoinConfiguration\nnodeRegistration:\n  name: \"node-1\"\n  kubeletExtraArgs:\n    provider-id: \"scaleway://instance/fr-par-1/1234\"\n",
		},
		"another document": {
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n---\n",
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n" + listed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Join([]byte(tt.text), node, "")
			if diff := cmp.Diff(tt.want, string(got)); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	const head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n"
	for text, why := range map[string]string{
		head + "token: [s3cr3t\n":                                "line",
		head + "token: s3cr3t\ntoken: other\n":                   "stands twice",
		head + "a: {b: s3cr3t, \"b\": s3cr3t}\n":                 "stands twice",
		head + "---\n" + head:                                    "two JoinConfigurations",
		head + "nodeRegistration: [s3cr3t]\n":                    "want a mapping",
		head + "nodeRegistration:\n  kubeletExtraArgs: s3cr3t\n": "want a list or a mapping",
		head + "token: !!python/object s3cr3t\n":                 "a tag",
		"kind: JoinConfiguration\ntoken: s3cr3t\n":               "no apiVersion",
		"apiVersion: v1\nkind: Config\ntoken: s3cr3t\n":          "not a kubeadm JoinConfiguration",
	} {
		if got, err := Join([]byte(text), node, v4); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v, want %q; %s", text, err, why, got)
		}
	}
}
