package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// A fault in the environment must not hide those of the flags, and what could
// not be read is not called missing as well.
func TestFaultsOfEnvironmentAndFlagsTogether(t *testing.T) {
	cfg, err := Load([]string{"--seed-count=0"}, lookupIn(map[string]string{
		"SCW_ACCESS_KEY": "a", "SCW_ACCESS_KEY_FILE": "b",
		"BIGFLEET_BOOTSTRAP_SECRET_FILE": filepath.Join(t.TempDir(), "absent"),
	}))
	if err == nil || cfg == nil {
		t.Fatalf("Load: %v, %v, want both a configuration and faults", cfg, err)
	}
	for _, want := range []string{"SCW_ACCESS_KEY and SCW_ACCESS_KEY_FILE are both set", "BIGFLEET_BOOTSTRAP_SECRET_FILE: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Load: %v, want %q", err, want)
		}
	}
	verdict := cfg.Validate().Error()
	for _, want := range []string{"--seed-count: 0", "--secret-key: missing"} {
		if !strings.Contains(verdict, want) {
			t.Errorf("Validate: %s\nwant %q", verdict, want)
		}
	}
	for _, unwanted := range []string{"--access-key: missing", "--bootstrap-secret: missing"} {
		if strings.Contains(verdict, unwanted) {
			t.Errorf("Validate: %s\nsays %q, although Load said why", verdict, unwanted)
		}
	}
}

// What would end a start at once is judged by check-config too.
func TestValidateJudgesFiles(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		vars map[string]string
		want string
	}{
		"offerings":    {args: []string{"--use-fake-backend", "--offerings=" + writeFile(t, "[]")}, want: "--offerings: "},
		"one offering": {args: []string{"--use-fake-backend", "--offerings=" + writeFile(t, `{"offerings": []}`)}, want: "holds one JSON object; want an array of objects"},
		"API URL": {
			args: []string{"--api-url=nonsense"},
			vars: map[string]string{"SCW_ACCESS_KEY": "SCW00000000000000000", "SCW_SECRET_KEY": "11111111-1111-1111-1111-111111111111", "SCW_DEFAULT_PROJECT_ID": "11111111-1111-1111-1111-111111111111"},
			want: `--api-url (SCW_API_URL): "nonsense"`,
		},
		"base user data":  {args: []string{"--use-fake-backend", "--base-user-data=" + writeFile(t, "hello")}, want: "  user data: base user data: "},
		"log level":       {args: []string{"--use-fake-backend", "--log-level=loud"}, want: `log level: "loud" is unknown`},
		"CA without pair": {args: []string{"--use-fake-backend", "--bootstrap-ca=/ca.pem"}, want: "--bootstrap-ca: set without"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Load(c.args, lookupIn(c.vars))
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.Validate(); err == nil || !strings.Contains("  "+err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestCheckConfigJudgesThePlaceOfTheState(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                        "is not a regular file",
		filepath.Join(dir, "absent", "x.db"):       "its folder: stat",
		filepath.Join(writeFile(t, ""), "x.db"):    "is not a folder",
		"/proc/self/x.db":                          "its folder is not writable",
		filepath.Join(dir, "new.db"):               "",
		writeFile(t, "a state, as far as it goes"): "",
	} {
		var out, errs strings.Builder
		code := Main("test", []string{checkCommand, "--use-fake-backend", "--state=" + path}, &out, &errs)
		switch {
		case want == "" && code != exitOK:
			t.Errorf("%s: exit code %d: %s", path, code, &errs)
		case want != "" && (code != exitUsage || !strings.Contains(errs.String(), "--state: "+path+": ") || !strings.Contains(errs.String(), want)):
			t.Errorf("%s: exit code %d, want %d and %q: %s", path, code, exitUsage, want, &errs)
		}
	}
}

// Each credential is judged, and none is quoted: a secret may be in the wrong
// place.
func TestValidateJudgesTheFormOfCredentials(t *testing.T) {
	const secret = "secret-in-the-wrong-place"
	cfg, err := Load(nil, lookupIn(map[string]string{
		"SCW_ACCESS_KEY": secret, "SCW_SECRET_KEY": secret, "SCW_DEFAULT_PROJECT_ID": secret,
	}))
	if err != nil {
		t.Fatal(err)
	}
	verdict := cfg.Validate().Error()
	for _, want := range []string{
		"--access-key (SCW_ACCESS_KEY): 25 characters of another form; want SCW and 17 more of A-Z and 0-9",
		"--secret-key (SCW_SECRET_KEY): 25 characters of another form; want a UUID",
		"--project-id (SCW_DEFAULT_PROJECT_ID): 25 characters of another form; want a UUID",
	} {
		if !strings.Contains(verdict, want) {
			t.Errorf("%s\nwant %q", verdict, want)
		}
	}
	if strings.Contains(verdict, secret) {
		t.Errorf("a credential is quoted: %s", verdict)
	}
}

func TestUnreadableValuesNameTheirForm(t *testing.T) {
	for arg, want := range map[string]string{
		"--create-timeout=5": `--create-timeout: "5"; want a number with its unit, such as 90s`,
		"--seed-count=many":  `--seed-count: "many"; want a whole number`,
		"--eur-usd=1,1":      `--eur-usd: "1,1"; want a number, such as 0.5`,
		"--reflection=off":   `--reflection: "off"; want true or false`,
	} {
		if _, err := Load([]string{arg}, lookupIn(nil)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out, errs strings.Builder
		if code := Main("v1.2.3", []string{arg}, &out, &errs); code != exitOK || !strings.HasPrefix(out.String(), "scaleway v1.2.3 (go") {
			t.Errorf("%s: exit code %d, %q %q", arg, code, &out, &errs)
		}
	}
}
