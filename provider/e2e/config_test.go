package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// run runs the provider to its end and returns its exit code and all it
// printed. It must end by itself.
func run(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	code, stdout, stderr := runApart(t, env, args...)
	return code, stdout + stderr
}

func runApart(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "scaleway"), args...)
	cmd.Env = env
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }) // its exit code says so
	defer timer.Stop()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), faults.String()
}

// wantRefusal expects that a command judged its configuration unusable, said
// why, and did nothing else.
func wantRefusal(t *testing.T, what string, code int, output string, wants ...string) {
	t.Helper()
	if code != 2 {
		t.Errorf("%s: exit code %d, want 2", what, code)
	}
	for _, want := range wants {
		if !strings.Contains(output, want) {
			t.Errorf("%s does not say %q:\n%s", what, want, output)
		}
	}
	for _, unwanted := range []string{"msg=serving", "goroutine ", "panic"} {
		if strings.Contains(output, unwanted) {
			t.Errorf("%s says %q:\n%s", what, unwanted, output)
		}
	}
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// account is an account that has the right form and does not exist.
var account = []string{
	"SCW_ACCESS_KEY=SCW00000000000000000",
	"SCW_SECRET_KEY=22222222-2222-2222-2222-222222222222",
	"SCW_DEFAULT_PROJECT_ID=11111111-1111-1111-1111-111111111111",
	"BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
}

// deployment is a configuration for the real backend that has no fault, apart
// from its account. It is only judged, never started.
func deployment(t *testing.T) []string {
	t.Helper()
	ca := newAuthority(t)
	cert, key := ca.pair("channel", nil)
	return []string{
		"--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key,
		"--bootstrap-ca=" + ca.pem, "--agent-install=image",
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"version":             {[]string{"version"}, 0, "scaleway dev (go", ""},
		"help":                {[]string{"--help"}, 0, "--use-fake-backend", ""},
		"help as a command":   {[]string{"help"}, 0, "--use-fake-backend", ""},
		"help of a command":   {[]string{"check-config", "--help"}, 0, "--use-fake-backend", ""},
		"check-config":        {[]string{"check-config", "--use-fake-backend"}, 0, "the configuration is usable", ""},
		"unknown flag":        {[]string{"--use-fake-backend", "--substrat=instances"}, 2, "", "unknown flag: --substrat"},
		"unknown command":     {[]string{"server"}, 2, "", `unknown command "server"`},
		"argument":            {[]string{"serve", "--use-fake-backend", "please"}, 2, "", `unexpected argument "please"`},
		"flag without value":  {[]string{"--zone"}, 2, "", "flag needs an argument: --zone"},
		"value of wrong type": {[]string{"--seed-count=many"}, 2, "", "--seed-count"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runApart(t, environment(), c.args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", code, c.code, stdout, stderr)
			}
			if (c.stdout == "") != (stdout == "") || (c.stderr == "") != (stderr == "") {
				t.Errorf("it printed to the wrong one of\nstdout: %s\nstderr: %s", stdout, stderr)
			}
		})
	}
	// The flags that the documentation and the chart rely on, by name.
	_, help, _ := runApart(t, environment(), "--help")
	for _, flag := range []string{
		"addr", "provider", "zone", "substrate", "scaleway-backend", "use-fake-backend", "access-key", "secret-key", "project-id", "image", "base-user-data",
		"offerings", "seed-count", "state", "bootstrap-addr", "bootstrap-endpoint", "bootstrap-tls-cert", "bootstrap-tls-key", "bootstrap-ca", "bootstrap-secret",
		"eur-usd", "price-refresh", "reconcile-interval", "metrics-addr", "reflection", "tls-cert", "tls-key", "tls-ca",
	} {
		if n := strings.Count(help, "--"+flag+" ") + strings.Count(help, "--"+flag+"["); n == 0 {
			t.Errorf("--help does not explain --%s", flag)
		}
	}
}

// TestNoCredentials: without an account and without being asked for the fake, a
// provider refuses to start and says both ways out.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"auto", "scaleway"} {
		code, out := run(t, environment(), append(deployment(t), "--scaleway-backend="+backend)...)
		wantRefusal(t, backend, code, out, "SCW_ACCESS_KEY", "SCW_SECRET_KEY", "SCW_DEFAULT_PROJECT_ID", "BIGFLEET_BOOTSTRAP_SECRET", "_FILE", "--use-fake-backend", "openssl rand -hex 32", "--allow-random-secret")
		if strings.Contains(out, "fake Scaleway serves") {
			t.Error("it fell back to the fake")
		}
	}
	p := startProvider(t, environment(), nil, "--scaleway-backend=fake") // the other way to ask for it
	p.line("fake Scaleway serves")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	flags := deployment(t)
	check := func(env []string, extra ...string) (int, string) {
		return run(t, environment(env...), append(append([]string{"check-config"}, flags...), extra...)...)
	}
	if code, out := check(account); code != 0 {
		t.Fatalf("all variables: exit code %d\n%s", code, out)
	}
	for i, variable := range account {
		name, value, _ := strings.Cut(variable, "=")
		without := slices.Delete(slices.Clone(account), i, i+1)
		t.Run(name, func(t *testing.T) {
			code, out := check(without)
			wantRefusal(t, "missing", code, out, name)
			code, out = check(append(slices.Clone(without), name+"="))
			wantRefusal(t, "empty", code, out, name)
			for _, end := range []string{"", "\n", "\r\n"} {
				if code, out := check(append(slices.Clone(without), name+"_FILE="+write(t, "secret", value+end))); code != 0 {
					t.Errorf("%s_FILE with %q at its end: exit code %d\n%s", name, end, code, out)
				}
			}
			code, out = check(append(slices.Clone(account), name+"_FILE="+write(t, "secret", value)))
			wantRefusal(t, "both", code, out, name+" and "+name+"_FILE are both set")
			code, out = check(append(slices.Clone(without), name+"_FILE=/nonexistent/secret"))
			wantRefusal(t, "file that is not there", code, out, name+"_FILE: open /nonexistent/secret")
			code, out = check(append(slices.Clone(without), name+"_FILE="+write(t, "secret", "")))
			wantRefusal(t, "empty file", code, out, name)

			flag := map[string]string{
				"SCW_ACCESS_KEY": "--access-key=", "SCW_SECRET_KEY": "--secret-key=",
				"SCW_DEFAULT_PROJECT_ID": "--project-id=", "BIGFLEET_BOOTSTRAP_SECRET": "--bootstrap-secret=",
			}[name]
			if code, out := check(without, flag+value); code != 0 {
				t.Errorf("%s: exit code %d\n%s", flag, code, out)
			}
			// A flag wins over its variable.
			code, out = check(account, flag+"short")
			wantRefusal(t, "a bad flag over a good variable", code, out)
			if strings.Contains(out, value) {
				t.Errorf("the value is printed:\n%s", out)
			}
		})
	}
	t.Run("zone", func(t *testing.T) {
		_, out := check(append(slices.Clone(account), "SCW_DEFAULT_ZONE=nl-ams-1"))
		if !strings.Contains(out, "zone nl-ams-1") {
			t.Errorf("SCW_DEFAULT_ZONE is not taken:\n%s", out)
		}
		_, out = check(append(slices.Clone(account), "SCW_DEFAULT_ZONE=nl-ams-1"), "--zone=pl-waw-2")
		if !strings.Contains(out, "zone pl-waw-2") {
			t.Errorf("--zone does not win:\n%s", out)
		}
	})
}

func TestConfigurationFaults(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair("channel", nil)
	_, wrongKey := other.pair("other", nil)
	pair := []string{"--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key, "--bootstrap-ca=" + ca.pem}
	withPair := func(extra ...string) []string {
		return append(append(slices.Clone(pair), "--agent-install=image"), extra...)
	}
	for name, c := range map[string]struct {
		env   []string
		args  []string
		wants []string
	}{
		"endpoint does not match the certificate": {account, withPair("--bootstrap-endpoint=https://provider.example:9443"), []string{"--bootstrap-endpoint https://provider.example:9443", "localhost"}},
		"endpoint is not https":                   {account, withPair("--bootstrap-endpoint=http://localhost:9443"), []string{`--bootstrap-endpoint: "http://localhost:9443": want https://host`}},
		"endpoint's port is 0":                    {account, withPair("--bootstrap-endpoint=https://localhost:0"), []string{`--bootstrap-endpoint: "https://localhost:0": port "0", want 1 to 65535`}},
		"endpoint's port is too large":            {account, withPair("--bootstrap-endpoint=https://localhost:99999"), []string{`port "99999", want 1 to 65535`}},
		"endpoint's host ends in two dots":        {account, withPair("--bootstrap-endpoint=https://localhost..:9443"), []string{`--bootstrap-endpoint: "https://localhost..:9443": host "localhost.."`}},
		"no endpoint":                             {account, withPair(), []string{"--bootstrap-endpoint: missing"}},
		"no certificate of the channel":           {account, []string{"--bootstrap-endpoint=https://localhost", "--agent-install=image"}, []string{"--bootstrap-tls-cert and --bootstrap-tls-key: missing"}},
		"half a pair of the channel":              {account, []string{"--bootstrap-endpoint=https://localhost", "--agent-install=image", "--bootstrap-tls-cert=" + cert}, []string{"--bootstrap-tls-cert and --bootstrap-tls-key: only one is set"}},
		"channel's key does not fit":              {account, []string{"--bootstrap-endpoint=https://localhost", "--agent-install=image", "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + wrongKey}, []string{"private key does not match public key"}},
		"agents pin another CA":                   {account, []string{"--bootstrap-endpoint=https://localhost", "--agent-install=image", "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key, "--bootstrap-ca=" + other.pem}, []string{"--bootstrap-ca", "unknown authority"}},
		"short bootstrap secret":                  {append(slices.Clone(account[:3]), "BIGFLEET_BOOTSTRAP_SECRET="+strings.Repeat("x", 31)), withPair("--bootstrap-endpoint=https://localhost"), []string{"--bootstrap-secret", "31 bytes", "at least 32"}},
		"short bootstrap secret with the fake":    {[]string{"BIGFLEET_BOOTSTRAP_SECRET=short"}, []string{"--use-fake-backend"}, []string{"5 bytes, at least 32"}},
		"no bootstrap secret":                     {account[:3], withPair("--bootstrap-endpoint=https://localhost"), []string{"--bootstrap-secret: missing", "openssl rand -hex 32", "--allow-random-secret"}},
		"agent's package is not there":            {account, append(slices.Clone(pair), "--bootstrap-endpoint=https://localhost", "--agent-packages="+t.TempDir()), []string{"--agent-packages", "bigfleet-agent_VERSION_ARCH.deb"}},
		"base user data is not there":             {nil, []string{"--use-fake-backend", "--base-user-data=/nonexistent"}, []string{"--base-user-data: open /nonexistent"}},
		"base user data of no kind":               {nil, []string{"--use-fake-backend", "--base-user-data=" + write(t, "data", "apt update\n")}, []string{"base user data", "#cloud-config"}},
		"base user data is too large":             {nil, []string{"--use-fake-backend", "--base-user-data=" + write(t, "data", "#!/bin/sh\n: "+strings.Repeat("\u00e9ab", 1<<17))}, []string{"user data", "limit"}},
		"offerings are not there":                 {nil, []string{"--use-fake-backend", "--offerings=/nonexistent"}, []string{"--offerings", "/nonexistent"}},
		"offerings are no JSON":                   {nil, []string{"--use-fake-backend", "--offerings=" + write(t, "o", "- type: DEV1-S")}, []string{"--offerings", "not a JSON array"}},
		"offerings are empty":                     {nil, []string{"--use-fake-backend", "--offerings=" + write(t, "o", "[]")}, []string{"no offering in it"}},
		"offerings with several faults":           {nil, []string{"--use-fake-backend", "--offerings=" + write(t, "o", `[{"count":-1},{"commercial_type":"DEV1-S","zone":"nl-ams-1","count":1,"colour":"red"}]`)}, []string{"offerings[0].commercial_type", "offerings[0].count", "offerings[1].zone", "colour"}},
		"fake and real at once":                   {account, []string{"--use-fake-backend", "--scaleway-backend=scaleway"}, []string{"--use-fake-backend contradicts --scaleway-backend=scaleway"}},
		"every fault at once": {
			[]string{"SCW_SECRET_KEY=a", "SCW_SECRET_KEY_FILE=b", "BIGFLEET_BOOTSTRAP_SECRET=short"},
			[]string{"--addr=9000", "--metrics-addr=x", "--bootstrap-addr=y", "--provider=Not_A_Name", "--zone=paris", "--substrate=paper", "--scaleway-backend=moon", "--seed-count=0", "--eur-usd=NaN", "--price-refresh=1s", "--create-timeout=-1s", "--tls-cert=/x", "--log-level=loud", "--log-format=xml", "--require-shard-identity", "--image=", "--offerings=/nonexistent"},
			[]string{"SCW_SECRET_KEY and SCW_SECRET_KEY_FILE", "5 bytes", "--addr", "--metrics-addr", "--bootstrap-addr", "--provider", "--zone", "--substrate", "--scaleway-backend", "--seed-count", "--eur-usd", "--price-refresh", "--create-timeout", "--tls-cert", "loud", "xml", "--require-shard-identity", "--image", "--offerings", "--access-key", "--project-id", "--bootstrap-endpoint", "--agent-packages"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := run(t, environment(c.env...), append([]string{"check-config"}, c.args...)...)
			wantRefusal(t, "check-config", code, out, c.wants...)
			code, out = run(t, environment(c.env...), c.args...)
			wantRefusal(t, "serve", code, out, c.wants...)
		})
	}
	t.Run("a random secret is used only when it is asked for", func(t *testing.T) {
		code, out := run(t, environment(account[:3]...), append([]string{"check-config", "--allow-random-secret"}, deployment(t)...)...)
		if code != 0 {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
}
