package deploy

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"bigfleet-providers/provider/e2e/docs/page"
)

const docs = "../../../docs"

// TestDocumentedCommands follows docs/credentials.md and docs/deploy.md on a real
// API server.
func TestDocumentedCommands(t *testing.T) {
	path := helmPath(t)
	c := startCluster(t)
	kubectl, err := exec.LookPath(filepath.Join(tools(), "kube", "bin", "kubectl"))
	if err != nil {
		if kubectl, err = exec.LookPath("kubectl"); err != nil {
			t.Skip("no kubectl, so the documented commands are not tried")
		}
	}
	dir, bin := t.TempDir(), t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	// The only step of these pages that needs an account: its outputs are played.
	tofu := "#!/bin/sh\ncase $3 in access_key) echo SCWXXXXXXXXXXXXXXXXX ;; *) echo 11111111-1111-4111-8111-111111111111 ;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "tofu"), []byte(tofu), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		filepath.Join(bin, "helm"): path, filepath.Join(bin, "kubectl"): kubectl, filepath.Join(dir, "deploy"): filepath.Join(root, "deploy"),
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(name string, after func(b page.Block, printed string)) {
		blocks, err := page.Read(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.With != "" { // provider/e2e/docs runs it
				continue
			}
			if b.Kind == page.File {
				if err := os.WriteFile(filepath.Join(dir, b.Name), []byte(b.Text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if b.Kind != page.Commands {
				continue
			}
			after(b, shell(t, dir, b.Text, "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.kubeconfig, "HOME="+bin))
		}
	}

	follow("credentials.md", func(page.Block, string) {})
	for name, keys := range exampleSecrets(t) {
		s, found := get[corev1.Secret](t, c, secretsPath+"/"+name)
		for _, key := range keys {
			if !found || len(s.Data[key]) == 0 {
				t.Errorf("docs/credentials.md makes no %s in Secret %s", key, name)
			}
		}
	}
	if s, _ := get[corev1.Secret](t, c, secretsPath+"/bigfleet-scaleway-bootstrap"); len(s.Data["previous"]) != 64 || bytes.Equal(s.Data["previous"], s.Data["bootstrap-secret"]) {
		t.Error("docs/credentials.md loses the bootstrap secret when it changes it")
	}

	installed := map[string]bool{}
	follow("deploy.md", func(b page.Block, printed string) {
		if _, rest, ok := strings.Cut(b.Text, "helm install "); ok {
			name := cmp.Or(strings.Fields(rest)...)
			_, installed[name] = get[appsv1.Deployment](t, c, deploymentsPath+"/"+name)
			if strings.Contains(printed, "MISSING") {
				t.Errorf("%s: something is missing after all that the pages said:\n%s", name, printed)
			}
		}
	})
	for _, name := range []string{"trial", release} {
		if !installed[name] {
			t.Errorf("release %s: no Deployment after its installation", name)
		}
		for _, path := range []string{deploymentsPath, claimsPath} {
			if _, found := get[struct{}](t, c, path+"/"+name); found {
				t.Errorf("%s/%s is left at the end", path, name)
			}
		}
	}
}

// shell runs commands as an operator's bash would, and ends the test if one fails.
func shell(t *testing.T, dir, commands string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out.String())
	}
	return out.String()
}
