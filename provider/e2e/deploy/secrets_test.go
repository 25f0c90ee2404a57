package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const secretFolder = "../../../deploy/secret"

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// exampleSecrets are the keys of each Secret in the example.
func exampleSecrets(t *testing.T) map[string][]string {
	t.Helper()
	secrets := map[string][]string{}
	for document := range strings.SplitSeq(read(t, filepath.Join(secretFolder, "scaleway-creds.example.yaml")), "\n---\n") {
		s, err := strict[corev1.Secret](document)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if s.Namespace != namespace || s.APIVersion != "v1" || s.Kind != "Secret" {
			t.Errorf("%s: %s %s in namespace %s", s.Name, s.APIVersion, s.Kind, s.Namespace)
		}
		for key := range s.StringData {
			secrets[s.Name] = append(secrets[s.Name], key)
		}
	}
	return secrets
}

// TestSecretExamplesFitTheChart: whatever the chart takes from the Secrets of the
// production values is in the example under the same names.
func TestSecretExamplesFitTheChart(t *testing.T) {
	secrets := exampleSecrets(t)
	o := decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml")))
	used := map[string]bool{}
	for _, e := range o.container(t).Env {
		if e.ValueFrom == nil {
			continue
		}
		ref := e.ValueFrom.SecretKeyRef
		used[ref.Name] = true
		if !slices.Contains(secrets[ref.Name], ref.Key) {
			t.Errorf("%s: Secret %s has no key %s in the example", e.Name, ref.Name, ref.Key)
		}
	}
	for _, v := range o.Deployment.Spec.Template.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		used[v.Secret.SecretName] = true
		for _, key := range []string{"tls.crt", "tls.key", "ca.crt"} {
			if !slices.Contains(secrets[v.Secret.SecretName], key) {
				t.Errorf("volume %s: Secret %s has no key %s in the example", v.Name, v.Secret.SecretName, key)
			}
		}
	}
	for name := range secrets {
		if !used[name] {
			t.Errorf("Secret %s of the example is used by nothing", name)
		}
	}
}

// TestOperatorsMakeTheSameSecrets: the examples for operators fill Secrets of the
// same names and keys.
func TestOperatorsMakeTheSameSecrets(t *testing.T) {
	secrets := exampleSecrets(t)
	type external struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			// Certificate
			SecretName string            `json:"secretName"`
			IssuerRef  map[string]string `json:"issuerRef"`
			DNSNames   []string          `json:"dnsNames"`
			PrivateKey map[string]any    `json:"privateKey"`
			Usages     []string          `json:"usages"`
			// ExternalSecret
			RefreshInterval string            `json:"refreshInterval"`
			RefreshPolicy   string            `json:"refreshPolicy"`
			SecretStoreRef  map[string]string `json:"secretStoreRef"`
			Target          struct {
				Name string `json:"name"`
			} `json:"target"`
			Data []struct {
				SecretKey string            `json:"secretKey"`
				RemoteRef map[string]string `json:"remoteRef"`
			} `json:"data"`
		} `json:"spec"`
	}
	for _, file := range []string{"scaleway-external-secrets.example.yaml", "scaleway-cert-manager.example.yaml"} {
		for document := range strings.SplitSeq(read(t, filepath.Join(secretFolder, file)), "\n---\n") {
			var e external
			if err := yaml.UnmarshalStrict([]byte(document), &e); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			name, keys := e.Spec.SecretName, []string{"tls.crt", "tls.key", "ca.crt"}
			if e.Kind == "ExternalSecret" {
				name, keys = e.Spec.Target.Name, nil
				for _, d := range e.Spec.Data {
					keys = append(keys, d.SecretKey)
				}
			}
			want := slices.Sorted(slices.Values(secrets[name]))
			if got := slices.Sorted(slices.Values(keys)); !slices.Equal(got, want) || e.Metadata.Namespace != namespace {
				t.Errorf("%s: %s fills Secret %s/%s with %q, the example has %q", file, e.Kind, e.Metadata.Namespace, name, got, want)
			}
		}
	}
}
