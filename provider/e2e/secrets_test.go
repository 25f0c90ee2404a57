package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	tokens "bigfleet-providers/shared/token"
)

// TestSecretsStayIn walks a machine through its whole life at the most talkative
// log level, with failures, and looks for what nobody may see.
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	dir, home, temp := t.TempDir(), t.TempDir(), t.TempDir()
	state := filepath.Join(dir, "state.db")
	traces := newCollector(t)
	ca := newAuthority(t)
	cert, key := ca.pair("server", nil)
	secret := "canary-bootstrap-secret-0123456789abcdef"
	hidden := canaries{
		"secret key":       "33333333-cafe-4bad-8bad-333333333333",
		"bootstrap secret": secret,
		"blob":             "canary-blob-join-me-with-this-token",
		"SSH key":          "canary-ssh-key-of-the-operators-user-data",
		"gRPC port's key":  line(t, key),
	}
	blob := append(g.blob(), "# "+hidden["blob"]+"\n"...)
	// The secrets come by files, as from mounted ones; that is the only place
	// where they are, apart from the environment of whoever wants that.
	env := environment(
		"SCW_ACCESS_KEY=SCW00000000000000000", "SCW_SECRET_KEY_FILE="+write(t, "key", hidden["secret key"]+"\n"),
		"SCW_DEFAULT_PROJECT_ID=11111111-1111-1111-1111-111111111111", "BIGFLEET_BOOTSTRAP_SECRET_FILE="+write(t, "secret", secret+"\n"),
		"SCW_DEBUG=true", // the SDK would print whole requests
		"HOME="+home, "TMPDIR="+temp, "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.URL,
	)
	base := write(t, "base", "#cloud-config\nssh_keys: {ed25519_private: "+hidden["SSH key"]+"}\n")
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--log-level=debug", "--configure-timeout=10m", "--state=" + state,
		"--base-user-data=" + base, "--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + ca.pem}
	creds := credentials.NewTLS(ca.client(""))
	p := startProvider(t, env, creds, args...)
	ids := p.machines(3)
	hmacKey, err := tokens.NewSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	hosts := state + ".fake" // the fake's servers and their disks: a host has its token and, on its tmpfs, its blob
	hidden["channel's key"] = lines(t, filepath.Join(hosts, "channel.pem"))[len(lines(t, filepath.Join(hosts, "channel.pem")))-3]

	look := func(what string) {
		t.Helper()
		hidden.in(t, "log, "+what, []byte(p.text()))
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			_, body := p.scrape(t, path)
			hidden.in(t, path+", "+what, []byte(body))
		}
		for _, m := range p.list().GetMachines() {
			hidden.in(t, "machine, "+what, []byte(m.String()))
		}
		// What a guest's every process can read: tags and names.
		_, servers := fetch(t, p.line(`fake Scaleway serves.*url=(\S+)`)[1]+"/debug/servers", "")
		hidden.in(t, "the cloud's servers, "+what, []byte(servers))
		hidden.in(t, "traces, "+what, []byte(traces.text()))
		for _, d := range []string{dir, home, temp} {
			hidden.inFiles(t, d, hosts)
		}
		for _, found := range hidden.inProcesses(t, p.cmd.Process.Pid) {
			t.Errorf("%s, %s", found, what)
		}
	}
	configure := func(id string, blob []byte) {
		t.Helper()
		if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: blob}); err != nil {
			t.Fatal(err)
		}
	}

	for i, id := range ids {
		hidden[fmt.Sprintf("plain token %d", i)] = tokens.DerivePlain(hmacKey, id)
		hidden[fmt.Sprintf("token %d", i)] = tokens.Derive(hmacKey, id, p.must("Create", id, token{}, idle))
	}
	// What a host proves itself by, beside its token.
	for _, path := range named(t, hosts, "host-id") {
		hidden[fmt.Sprintf("host id %d", len(hidden))] = lines(t, path)[0]
	}
	look("IDLE")
	configure(ids[0], blob)
	await(t, "the hook", func() bool {
		running := false
		_ = filepath.WalkDir(hosts, func(path string, _ fs.DirEntry, _ error) error {
			running = running || strings.HasSuffix(path, "opt/bigfleet/bootstrap")
			return nil
		})
		return running
	})
	look("CONFIGURING")
	// The blob is sealed, not lost: another process goes on with it.
	p.kill()
	hidden.inFiles(t, dir, hosts)
	p = startProvider(t, env, creds, args...)
	look("CONFIGURING after a restart")
	g.open(t, "configure")
	if _, err := p.await(ids[0], configured); err != nil {
		t.Fatal(err)
	}
	look("CONFIGURED")
	g.open(t, "drain")
	p.must("Drain", ids[0], token{}, idle)
	p.must("Delete", ids[0], token{}, speculative)
	look("the end")

	// Refused calls that carried the blob.
	for what, req := range map[string]*pb.ConfigureRequest{
		"no cluster":    {MachineId: ids[1], BootstrapBlob: blob},
		"large":         {MachineId: ids[1], ClusterId: "c", BootstrapBlob: bytes.Repeat(blob, maxBlob/len(blob)+1)},
		"SPECULATIVE":   {MachineId: ids[0], ClusterId: "c", BootstrapBlob: blob},
		"not a machine": {MachineId: "nobody", ClusterId: "c", BootstrapBlob: blob},
	} {
		err := p.send(req)
		if status.Code(err) == codes.OK {
			t.Errorf("%s is accepted", what)
		}
		hidden.in(t, "error, "+what, []byte(fmt.Sprint(err)))
	}
	// A hook that fails while it prints what it was given.
	configure(ids[1], []byte("#!/bin/sh\necho "+hidden["blob"]+" >&2\ncat \"$0\" \"$BIGFLEET_BLOB_FILE\" >&2\nexit 3\n"))
	m, err := p.await(ids[1], failed)
	if m.GetState() != failed || !strings.Contains(m.GetLastError(), "3") {
		t.Errorf("a hook with exit code 3: %v, %v", m, err)
	}
	look("FAILED")
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	hidden.inFiles(t, dir, hosts)
	hidden.in(t, "log", []byte(p.text()))
	if hidden.in(t, "traces", []byte(traces.text())); len(traces.all()) == 0 {
		t.Error("there are no traces to look into")
	}
	for _, args := range [][]string{{"state", "inspect", state}, {"state", "check", state}} {
		hidden.in(t, strings.Join(args, " "), []byte(mustCtl(t, "", args...)))
	}
	// A host has its own token and id in files that root alone can read, and nothing else:
	// neither what other hosts could be taken over with nor, once a hook is done, a
	// blob.
	others := maps.Clone(hidden)
	maps.DeleteFunc(others, func(name, _ string) bool {
		return strings.HasPrefix(name, "token") || strings.HasPrefix(name, "host id") || name == "channel's key"
	})
	others.inFiles(t, hosts, filepath.Join(hosts, "channel.pem"))
	machines, err := filepath.Glob(filepath.Join(hosts, "hosts", "*"))
	if err != nil || len(machines) != 2 {
		t.Fatalf("there are %d hosts, want 2: %v", len(machines), err)
	}
	for _, m := range machines {
		own := map[string]bool{}
		err := filepath.WalkDir(m, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range hidden.found(content) {
				own[name] = true
				if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s holds the %s and has mode %v: %v", path, name, info.Mode(), err)
				}
			}
			return nil
		})
		if err != nil || len(own) != 2 {
			t.Errorf("%s holds %v, want a token and an id: %v", m, own, err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(hosts, "hosts", "*", "var", "log", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("hosts have no logs: %v", err)
	}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		hidden.in(t, path, content)
	}
}

// named lists the files below a folder that have the name.
func named(t *testing.T, dir, name string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s below %s: %v", name, dir, err)
	}
	return paths
}

// text is all that a collector was sent.
func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.String()
}

// TestSecretsOfARefusedAccount: a key that the cloud refuses is not quoted, by
// whatever way the refusal comes.
func TestSecretsOfARefusedAccount(t *testing.T) {
	t.Parallel()
	hidden := canaries{"secret key": "33333333-cafe-4bad-8bad-333333333333", "bootstrap secret": "canary-bootstrap-secret-0123456789abcdef"}
	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001")
	env := environment(
		"SCW_API_URL="+cloud.line(`SCW_API_URL=(\S+)`)[1], "SCW_ACCESS_KEY=SCW00000000000000000", "SCW_SECRET_KEY="+hidden["secret key"],
		"SCW_DEFAULT_PROJECT_ID="+cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1], "BIGFLEET_BOOTSTRAP_SECRET="+hidden["bootstrap secret"], "SCW_DEBUG=true",
	)
	args := append(deployment(t), "--log-level=debug", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--bootstrap-addr=127.0.0.1:0")
	code, out := run(t, env, args...)
	if code != 1 || !strings.Contains(out, "refuses the credentials") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	hidden.in(t, "serve", []byte(out))
	_, out = run(t, env, append([]string{"check-config", "--live"}, args...)...)
	if !strings.Contains(out, "FAIL") {
		t.Errorf("the live check finds nothing:\n%s", out)
	}
	hidden.in(t, "check-config --live", []byte(out))
	hidden.in(t, "the cloud's log", []byte(cloud.text()))
}

// TestNoFileOfTheSDKIsRead: the vendor's tools keep keys in a file in the home
// folder. A provider takes its account from flags, environment and the files
// that they name; whoever opens the file here waits for ever.
func TestNoFileOfTheSDKIsRead(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	config := filepath.Join(home, ".config", "scw", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(config, 0o600); err != nil {
		t.Fatal(err)
	}
	vendor := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "SCW_CONFIG_PATH=" + config, "SCW_PROFILE=other"}
	code, out := run(t, environment(vendor...), deployment(t)...)
	wantRefusal(t, "an account in the home folder only", code, out, "SCW_ACCESS_KEY", "SCW_SECRET_KEY")

	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001")
	access, project := cloud.line(`SCW_ACCESS_KEY=(\S+)`)[1], cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1]
	p := startProvider(t, environment(append(vendor,
		"SCW_API_URL="+cloud.line(`SCW_API_URL=(\S+)`)[1], "SCW_ACCESS_KEY="+access, "SCW_SECRET_KEY="+cloud.line(`SCW_SECRET_KEY=(\S+)`)[1],
		"SCW_DEFAULT_PROJECT_ID="+project, "BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
	)...), nil, append(deployment(t), "--bootstrap-addr=127.0.0.1:0")...)
	// Which key it is, for those who rotate keys: as the page says to compute it.
	sum := sha256.Sum256([]byte(access))
	p.line(`msg="Scaleway account" .*key_fingerprint=` + hex.EncodeToString(sum[:4]) + ` project=` + project)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	canaries{"access key": access}.in(t, "the log", []byte(p.text()))
}

// TestSecretsInRefusals: a secret in the wrong form is not quoted back.
func TestSecretsInRefusals(t *testing.T) {
	t.Parallel()
	hidden := canaries{"secret key": "canary-secret-key-that-is-no-uuid", "bootstrap secret": "canary-too-short"}
	env := environment(account[0], account[2], "SCW_SECRET_KEY="+hidden["secret key"], "BIGFLEET_BOOTSTRAP_SECRET="+hidden["bootstrap secret"])
	for _, command := range []string{"serve", "check-config"} {
		code, out := run(t, env, append([]string{command, "--log-level=debug"}, deployment(t)...)...)
		wantRefusal(t, command, code, out, "--secret-key", "--bootstrap-secret")
		hidden.in(t, command, []byte(out))
	}
	password := canaries{"password": "canary-password-in-a-url"}
	code, out := run(t, environment(account...), append([]string{"check-config", "--api-url=https://user:" + password["password"] + "@api.example"}, deployment(t)...)...)
	wantRefusal(t, "a URL with a password", code, out, "--api-url (SCW_API_URL): has a user in it")
	password.in(t, "a URL with a password", []byte(out))
	code, out = run(t, environment(), "check-config", "--secret-key="+hidden["secret key"], "--access-key=a", "--project-id=b", "--bootstrap-secret="+hidden["bootstrap secret"])
	wantRefusal(t, "flags", code, out)
	hidden.in(t, "flags", []byte(out))
}
