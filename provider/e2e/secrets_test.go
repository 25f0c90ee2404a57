package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	tokens "bigfleet-providers/shared/token"
)

// canaries are what must not be seen anywhere, by name.
type canaries map[string]string

// in reports every canary in content.
func (c canaries) in(t *testing.T, where string, content []byte) {
	t.Helper()
	for _, name := range c.found(content) {
		t.Errorf("%s holds the %s", where, name)
	}
}

// found names the canaries in content, also in the encodings in which bytes are
// printed and stored.
func (c canaries) found(content []byte) []string {
	var names []string
	for name, secret := range c {
		raw := []byte(secret)
		// An encoding in base64 depends on what is before it, up to three ways.
		forms := [][]byte{raw, []byte(hex.EncodeToString(raw)), fmt.Appendf(nil, "%v", raw)}
		for skip := range 3 {
			part := raw[skip:]
			forms = append(forms, []byte(base64.RawStdEncoding.EncodeToString(part[:len(part)/3*3])))
		}
		if slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(content, form) }) {
			names = append(names, name)
		}
	}
	return names
}

// inFiles looks into every file below a folder.
func (c canaries) inFiles(t *testing.T, dir string, except ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(except, path) {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		c.in(t, path, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSecretsStayIn walks a machine through its whole life at the most talkative
// log level, with failures, and looks for what nobody may see.
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	dir := t.TempDir()
	state := filepath.Join(dir, "state.db")
	secret := "canary-bootstrap-secret-0123456789abcdef"
	hidden := canaries{
		"secret key":       "33333333-cafe-4bad-8bad-333333333333",
		"bootstrap secret": secret,
		"blob":             "canary-blob-join-me-with-this-token",
	}
	blob := append(g.blob(), "# "+hidden["blob"]+"\n"...)
	// The secrets come by files, as from mounted ones; that is the only place
	// where they are, apart from the environment of whoever wants that.
	env := environment(
		"SCW_ACCESS_KEY=SCW00000000000000000", "SCW_SECRET_KEY_FILE="+write(t, "key", hidden["secret key"]+"\n"),
		"SCW_DEFAULT_PROJECT_ID=11111111-1111-1111-1111-111111111111", "BIGFLEET_BOOTSTRAP_SECRET_FILE="+write(t, "secret", secret+"\n"),
		"SCW_DEBUG=1", // the SDK would print whole requests
	)
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--log-level=debug", "--configure-timeout=10m", "--state=" + state}
	p := startProvider(t, env, nil, args...)
	ids := p.machines(3)
	key, err := tokens.NewSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		hidden[fmt.Sprintf("token %d", i)] = tokens.Derive(key, id)
	}
	hosts := state + ".fake" // the fake's servers and their disks: a host has its token and, on its tmpfs, its blob

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
		hidden.inFiles(t, dir, hosts)
		commandLines(t, p.cmd.Process.Pid, hidden)
	}
	configure := func(id string, blob []byte) {
		t.Helper()
		if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: blob}); err != nil {
			t.Fatal(err)
		}
	}

	for _, id := range ids {
		p.must("Create", id, token{}, idle)
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
	p = startProvider(t, env, nil, args...)
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
	// A host has its own token in its configuration, and nothing else: neither
	// what other hosts could be taken over with nor, once a hook is done, a blob.
	configs, err := filepath.Glob(filepath.Join(hosts, "hosts", "*", "etc", "bigfleet-agent", "config.json"))
	if err != nil || len(configs) != 2 {
		t.Fatalf("hosts have %d configurations, want 2: %v", len(configs), err)
	}
	for _, path := range configs {
		content, err := os.ReadFile(path)
		if names := hidden.found(content); err != nil || len(names) != 1 || !strings.HasPrefix(names[0], "token") {
			t.Errorf("%s holds %q, want a token: %v", path, names, err)
		}
	}
	others := canaries{"secret key": hidden["secret key"], "bootstrap secret": secret, "blob": hidden["blob"]}
	others.inFiles(t, hosts)
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

// commandLines looks at the command lines of a process and of all that it
// started: everybody on the machine can read them.
func commandLines(t *testing.T, pid int, hidden canaries) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	children := map[string]bool{fmt.Sprint(pid): true}
	for grown := true; grown; {
		grown = false
		for _, line := range lines {
			p := filepath.Base(filepath.Dir(line))
			stat, err := os.ReadFile("/proc/" + p + "/stat")
			if err != nil || children[p] {
				continue // it ended
			}
			// pid (name) state parent
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			if children[fields[1]] {
				children[p], grown = true, true
			}
		}
	}
	for p := range children {
		content, err := os.ReadFile("/proc/" + p + "/cmdline")
		if err == nil { // else it ended
			hidden.in(t, "command line of "+string(content), content)
		}
	}
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
	code, out := run(t, environment(), "check-config", "--secret-key="+hidden["secret key"], "--access-key=a", "--project-id=b", "--bootstrap-secret="+hidden["bootstrap secret"])
	wantRefusal(t, "flags", code, out)
	hidden.in(t, "flags", []byte(out))
}
