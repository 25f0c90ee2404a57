package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/scaleway"
)

// offeringFields are the fields that an offering may have, in the program's own
// words: it lists them when it meets another.
func offeringFields(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "offerings.json")
	if err := os.WriteFile(file, []byte(`[{"commercial_type":"DEV1-S","zone":"fr-par-1","count":1,"typo":1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, out := checkConfig("--use-fake-backend", "--offerings="+file)
	_, list, ok := strings.Cut(out, "unknown field; known are ")
	if !ok {
		t.Fatalf("it does not list them:\n%s", out)
	}
	list, _, _ = strings.Cut(list, "\n")
	return strings.Split(strings.ReplaceAll(strings.TrimSpace(list), " and ", ", "), ", ")
}

// checkConfig is the provider's own judgement of a command line.
func checkConfig(args ...string) (code int, output string) {
	var out bytes.Buffer
	code = provider.Main(scaleway.Vendor(), "test", append([]string{"check-config"}, args...), &out, &out)
	return code, out.String()
}

// TestProgramAcceptsTheRender gives the provider the container's command line and
// environment, in a folder laid out as the pod's volumes are.
func TestProgramAcceptsTheRender(t *testing.T) {
	for _, set := range valueSets(t) {
		o := decode(t, render(t, set.release, "--values", set.file))
		if o.Deployment.Labels["bigfleet/cloud"] != "scaleway" {
			continue // of the other clouds there is no program yet
		}
		t.Run(set.name, func(t *testing.T) {
			args := layOut(t, o)
			if code, out := checkConfig(args...); code != 0 {
				t.Errorf("exit code %d\n%s\n%s", code, strings.Join(args, "\n"), out)
			}
		})
	}
}

// TestChannelNeedsNoCA: a TLS Secret without ca.crt, or with an empty one, as some
// issuers make it, is enough unless the values say otherwise. A damaged one is not
// passed over.
func TestChannelNeedsNoCA(t *testing.T) {
	for name, tc := range map[string]struct {
		pin     string
		content []byte // nil: there is no file
		code    int
	}{
		"missing":             {"auto", nil, 0},
		"empty":               {"auto", []byte{}, 0},
		"damaged":             {"auto", []byte("-----BEGIN CERTIFICATE-----\n"), 2},
		"missing, and needed": {"true", nil, 2},
		"empty, and needed":   {"true", []byte{}, 2},
		"damaged, not used":   {"false", []byte("-----BEGIN CERTIFICATE-----\n"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml"), "--set", "bootstrap.tls.pinCA="+tc.pin))
			args := layOut(t, o)
			i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--bootstrap-tls-cert=") })
			ca := filepath.Join(filepath.Dir(strings.TrimPrefix(args[i], "--bootstrap-tls-cert=")), "ca.crt")
			err := os.Remove(ca)
			if err == nil && tc.content != nil {
				err = os.WriteFile(ca, tc.content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if code, out := checkConfig(args...); code != tc.code || tc.code != 0 && !strings.Contains(out, "--bootstrap-ca") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// layOut makes what the pod mounts below a temporary folder, sets the container's
// environment, and returns its arguments with the paths moved there.
func layOut(t *testing.T, o objects) []string {
	t.Helper()
	root, c := t.TempDir(), o.container(t)
	host := "provider.example"
	for _, arg := range c.Args {
		if endpoint, ok := strings.CutPrefix(arg, "--bootstrap-endpoint="); ok {
			u, err := url.Parse(endpoint)
			if err != nil {
				t.Fatal(err)
			}
			host = u.Hostname()
		}
	}
	put := func(path, content string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	volumes := map[string]corev1.Volume{}
	for _, v := range o.Deployment.Spec.Template.Spec.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range c.VolumeMounts {
		v, ok := volumes[m.Name]
		if !ok {
			t.Errorf("mount of volume %s, which is not there", m.Name)
		}
		if err := os.MkdirAll(filepath.Join(root, m.MountPath), 0o700); err != nil {
			t.Fatal(err)
		}
		switch {
		case v.ConfigMap != nil:
			for name, content := range o.ConfigMap.Data {
				put(filepath.Join(m.MountPath, name), content)
			}
		case v.Secret != nil:
			cert, key := selfSigned(t, host)
			for name, content := range map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert} {
				put(filepath.Join(m.MountPath, name), content)
			}
		}
		delete(volumes, m.Name)
	}
	for name := range volumes {
		t.Errorf("volume %s is mounted nowhere", name)
	}
	put("/usr/share/bigfleet/packages/bigfleet-agent_1.0_amd64.deb", "!<arch>\n")
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{
				"SCW_ACCESS_KEY": "SCWXXXXXXXXXXXXXXXXX", "SCW_SECRET_KEY": "11111111-1111-4111-8111-111111111111",
				"SCW_DEFAULT_PROJECT_ID":             "22222222-2222-4222-8222-222222222222",
				"BIGFLEET_BOOTSTRAP_SECRET":          strings.Repeat("s", 32),
				"BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS": strings.Repeat("p", 32),
			}[e.Name]
		}
		t.Setenv(e.Name, value)
	}
	args := slices.Clone(c.Args)
	moved := regexp.MustCompile(`=(/(etc|run|usr|var)/)`)
	for i := range args {
		args[i] = moved.ReplaceAllString(args[i], "="+root+"$1")
	}
	return args
}

// selfSigned is a certificate for a host, and its key.
func selfSigned(t *testing.T, host string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
