package deploy

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const docs = "../../../docs"

// block is a piece of a page that is marked as tested: a file to write, or
// commands to run.
type block struct {
	file string // "" for commands
	text string
	live bool // commands that need a provider to talk to
}

var (
	marked = regexp.MustCompile("(?s)\n( *)<!-- tested( with a provider)?(?:: ([a-z.-]+))? -->\n *```[a-z]+\n(.*?\n) *```\n")
	fenced = regexp.MustCompile("(?s)\n( *)```sh\n(.*?\n) *```\n")
)

// testedBlocks are those of a page, in order. Whatever is not marked has to say
// what it needs that a test has not.
func testedBlocks(t *testing.T, page string) []block {
	t.Helper()
	text := read(t, filepath.Join(docs, page))
	var blocks []block
	for _, m := range marked.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block{m[3], outdent(m[4], m[1]), m[2] != ""})
	}
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		commands := outdent(m[2], m[1])
		run := slices.ContainsFunc(blocks, func(b block) bool { return b.text == commands })
		if !run && !strings.HasPrefix(commands, "# ") {
			t.Errorf("%s: neither tested, nor does its first line say why not:\n%s", page, commands)
		}
	}
	if len(blocks) == 0 {
		t.Errorf("%s: nothing is tested", page)
	}
	return blocks
}

func outdent(text, by string) string {
	return strings.ReplaceAll("\n"+text, "\n"+by, "\n")[1:]
}

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
	follow := func(page string, after func(b block, printed string)) {
		for _, b := range testedBlocks(t, page) {
			if b.live {
				continue
			}
			if b.file != "" {
				if err := os.WriteFile(filepath.Join(dir, b.file), []byte(b.text), 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			after(b, shell(t, dir, b.text, "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.kubeconfig, "HOME="+bin))
		}
	}

	follow("credentials.md", func(block, string) {})
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
	follow("deploy.md", func(b block, printed string) {
		if _, rest, ok := strings.Cut(b.text, "helm install "); ok {
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

// TestDocumentedWalks gives machines a life and takes them back, as docs/deploy.md
// says, with a provider on the fake backend.
func TestDocumentedWalks(t *testing.T) {
	bin, root := t.TempDir(), "../../.."
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./provider/cmd/scaleway", "./provider/cmd/capacityctl")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	run(t, filepath.Join(bin, "log"), filepath.Join(bin, "scaleway"), "--use-fake-backend", "--provider="+release, "--addr="+address, "--metrics-addr=")
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CAPACITYCTL_ADDR=" + address, "CAPACITYCTL_INSECURE=true"}
	shell(t, bin, "for i in $(seq 100); do capacityctl list >/dev/null 2>&1 && exit; sleep 0.1; done; capacityctl list", env...)

	var life, teardown []string
	for _, b := range testedBlocks(t, "deploy.md") {
		switch {
		case b.live && strings.Contains(b.text, "machines"):
			teardown = append(teardown, b.text)
		case b.live:
			life = append(life, b.text)
		}
	}
	if len(life) != 1 || len(teardown) != 2 {
		t.Fatalf("%d and %d blocks", len(life), len(teardown))
	}
	shell(t, bin, life[0], env...)
	// One machine of each kind that a teardown meets.
	shell(t, bin, `set -- $(capacityctl list | awk '/^`+release+`-/ { print $1 }')
printf '#!/bin/sh\ntrue\n' | capacityctl walk "$1" create configure --cluster prod --blob-file -
capacityctl walk "$2" create`, env...)
	shell(t, bin, strings.Join(teardown, "\n"), env...)
	left := shell(t, bin, "capacityctl list", env...)
	if rows := strings.Count(left, release+"-"); rows == 0 || rows != strings.Count(left, "  SPECULATIVE  ") {
		t.Errorf("after the teardown:\n%s", left)
	}
}
