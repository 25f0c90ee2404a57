package provider

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/store"
)

func lookupIn(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckConfigJudgesThePlaceOfTheState(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                     "is not a regular file",
		filepath.Join(dir, "absent", "x.db"):    "its folder: stat",
		filepath.Join(writeFile(t, ""), "x.db"): "is not a folder",
		"/proc/self/x.db":                       "its folder is not writable",
		filepath.Join(dir, "new.db"):            "",
	} {
		var out, errs strings.Builder
		code := Main(toyVendor(), "test", []string{checkCommand, "--token=sesame", "--state=" + path}, &out, &errs)
		switch {
		case want == "" && code != exitOK:
			t.Errorf("%s: exit code %d: %s", path, code, &errs)
		case want != "" && (code != exitUsage || !strings.Contains(errs.String(), "--state: "+path+": ") || !strings.Contains(errs.String(), want)):
			t.Errorf("%s: exit code %d, want %d and %q: %s", path, code, exitUsage, want, &errs)
		}
	}
}

// TestCheckConfigLooksIntoTheState: what would end a start is found before it,
// and the file is left as it is.
func TestCheckConfigLooksIntoTheState(t *testing.T) {
	t.Setenv("TOY_TOKEN", "sesame")
	path := filepath.Join(t.TempDir(), "x.db")
	st, err := store.Open(store.Options{Path: path, Owner: store.Owner{Provider: "toy", Zone: "town"}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) (int, string) {
		t.Helper()
		var out strings.Builder
		code := Main(toyVendor(), "test", append([]string{checkCommand}, args...), &out, &out)
		return code, out.String()
	}
	if code, out := check("--state=" + path); code != exitOK || !strings.Contains(out, path+" was not looked into, since a provider runs on it") {
		t.Errorf("in use: exit code %d: %s", code, out)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code, out := check("--state=" + path); code != exitOK || strings.Contains(out, path) {
		t.Errorf("its own: exit code %d: %s", code, out)
	}
	for want, args := range map[string][]string{
		`x.db: belongs to --provider "toy" and not "other"; give the flag`: {"--state=" + path, "--provider=other"},
		"is no state file: name another --state":                           {"--state=" + writeFile(t, "# Read me")},
		"is damaged: it is empty":                                          {"--state=" + writeFile(t, "")},
	} {
		if code, out := check(append(args, "--seed-count=0")...); code != exitUsage || !strings.Contains(out, want) || !strings.Contains(out, "--seed-count") {
			t.Errorf("exit code %d, want %d and %q: %s", code, exitUsage, want, out)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestEveryFaultIsTold: what cannot be read, what cannot be used and what cannot
// be opened, by serve as by check-config.
func TestEveryFaultIsTold(t *testing.T) {
	text := writeFile(t, "")
	for _, command := range []string{"serve", checkCommand} {
		var out, errs strings.Builder
		code := Main(toyVendor(), "test", []string{
			command, "--nope", "1", "--seed-count=x", "--removal-cap", "-1", "--addr=:99999", "--metrics-addr=:metrics-of-nobody",
			"--log-level=loud", "--state=/absent/x.db", "--admin-socket=" + text,
		}, &out, &errs)
		if code != exitUsage {
			t.Errorf("%s: exit code %d: %s", command, code, &out)
		}
		for _, want := range []string{
			"unknown flag: --nope\n", `--seed-count: "x"; want a whole number`, "--removal-cap: -1", `--addr: ":99999": there is no port "99999"`,
			`no port "metrics-of-nobody"`, `  --log-level: "loud" is unknown`, "--token: missing", "--state: /absent/x.db: its folder",
			"--admin-socket: " + text + ": exists and is not a socket",
		} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: %q is not in\n%s", command, want, &errs)
			}
		}
		if strings.Contains(errs.String(), "unexpected argument") {
			t.Errorf("%s: the value of an unknown flag is a fault of its own:\n%s", command, &errs)
		}
	}
}

func TestTracesAreJudged(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:canary@collector:x")
	var out, errs strings.Builder
	if code := Main(toyVendor(), "test", []string{checkCommand}, &out, &errs); code != exitUsage {
		t.Errorf("exit code %d: %s", code, &out)
	}
	if text := errs.String(); !strings.Contains(text, "OTEL_EXPORTER_OTLP_ENDPOINT: ") || strings.Contains(text, "canary") {
		t.Error(text)
	}
}

func TestListenersAreJudged(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--addr=127.0.0.1:7000", "--metrics-addr=127.0.0.1:7001"}, ""},
		{[]string{"--addr=:0", "--metrics-addr=:0"}, ""},
		{[]string{"--addr=*:7000"}, `--addr: "*:7000": host "*"`},
		{[]string{"--metrics-addr= :7000"}, `--metrics-addr: " :7000": host " "`},
		{[]string{"--addr=:7000", "--metrics-addr=:7000"}, "--metrics-addr: :7000 is the address of --addr, too"},
		{[]string{"--addr=:9443"}, "--bootstrap-addr: :9443 is the address of --addr, too"},
	} {
		cfg, err := Load(channelVendor(), tt.args, lookupIn(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.validateListeners(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestCheckConfigJudgesThePlaceOfTheSocket(t *testing.T) {
	t.Setenv("TOY_TOKEN", "sesame")
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "admin"):                "",
		filepath.Join(dir, "made", "admin"):        "", // by a start
		filepath.Join(dir, "not", "made", "admin"): "make its folder",
		filepath.Join(open, "admin"):               "writable by it alone",
	} {
		var out, errs strings.Builder
		args := []string{checkCommand, "--state=" + filepath.Join(dir, "x.db"), "--admin-socket=" + path}
		switch code := Main(toyVendor(), "test", args, &out, &errs); {
		case want == "" && code != exitOK, want != "" && (code != exitUsage || !strings.Contains(errs.String(), "--admin-socket: "+path+": ") || !strings.Contains(errs.String(), want)):
			t.Errorf("%s: exit code %d, want %q: %s", path, code, want, &errs)
		}
	}
}

// TestArguments: every word of a command line is read, in both ways to write a value.
func TestArguments(t *testing.T) {
	cfg, err := Load(toyVendor(), []string{"--provider", "--p", "--addr=:1", "--live", "--seed-count", "3"}, lookupIn(nil))
	if err != nil || cfg.Provider != "--p" || cfg.Addr != ":1" || !cfg.Live || cfg.SeedCount != 3 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for want, args := range map[string][]string{
		`unexpected argument "a"; a flag's value stands behind it, as --flag=value or --flag value`:      {"--live", "a", "--addr=:1", "b"},
		`unexpected argument "--live"; a flag's value stands behind it, as --flag=value or --flag value`: {"--", "--live"},
		"flag needs an argument: --addr":                   {"--live", "--addr"},
		"unknown flag: -x; flags begin with two dashes":    {"-x"},
		"unknown flag: -addr; flags begin with two dashes": {"-addr=:1"},
		"unknown flag: --adr":                              {"--adr=:1"},
	} {
		if _, err := Load(toyVendor(), args, lookupIn(nil)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestUnreadableValuesNameTheirForm(t *testing.T) {
	for arg, want := range map[string]string{
		"--create-timeout=5": `--create-timeout: "5"; want a number with its unit, such as 90s`,
		"--seed-count=many":  `--seed-count: "many"; want a whole number`,
		"--eur-usd=1,1":      `--eur-usd: "1,1"; want a number, such as 0.5`,
		"--reflection=off":   `--reflection: "off"; want true or false`,
	} {
		if _, err := Load(toyVendor(), []string{arg}, lookupIn(nil)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out, errs strings.Builder
		if code := Main(toyVendor(), "v1.2.3", []string{arg}, &out, &errs); code != exitOK || !strings.HasPrefix(out.String(), "toy v1.2.3 (go") {
			t.Errorf("%s: exit code %d, %q %q", arg, code, &out, &errs)
		}
		errs.Reset()
		if code := Main(toyVendor(), "v1.2.3", []string{arg, "--foo"}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), `version takes no "--foo"`) {
			t.Errorf("%s --foo: exit code %d, %q", arg, code, &errs)
		}
	}
}

func TestLimitsOfRemovalsAndPauses(t *testing.T) {
	for arg, want := range map[string]string{
		"--removal-cap=-1": "--removal-cap: -1",
		"--type-pause=-1s": "--type-pause: -1s", "--type-pause-max=1s": "--type-pause-max: 1s is shorter than --type-pause, 30s",
	} {
		cfg, err := Load(toyVendor(), []string{"--token=sesame", arg}, lookupIn(nil))
		if err != nil {
			t.Errorf("%s: %v", arg, err)
			continue
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, want %q", arg, fmt.Sprint(err), want)
		}
	}
}
