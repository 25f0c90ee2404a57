package scaleway

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A fault in the environment must not hide those of the flags, and what could
// not be read is not called missing as well.
func TestFaultsOfEnvironmentAndFlagsTogether(t *testing.T) {
	cfg, _, err := load([]string{"--seed-count=0"}, map[string]string{
		"SCW_ACCESS_KEY": "a", "SCW_ACCESS_KEY_FILE": "b",
		"BIGFLEET_BOOTSTRAP_SECRET_FILE": filepath.Join(t.TempDir(), "absent"),
	})
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
		"log level":       {args: []string{"--use-fake-backend", "--log-level=loud"}, want: `--log-level: "loud" is unknown`},
		"CA without pair": {args: []string{"--use-fake-backend", "--bootstrap-ca=/ca.pem"}, want: "--bootstrap-ca: set without"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, err := load(c.args, c.vars)
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.Validate(); err == nil || !strings.Contains("  "+err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Each credential is judged, and none is quoted: a secret may be in the wrong
// place.
func TestValidateJudgesTheFormOfCredentials(t *testing.T) {
	const secret = "secret-in-the-wrong-place"
	cfg, _, err := load(nil, map[string]string{
		"SCW_ACCESS_KEY": secret, "SCW_SECRET_KEY": secret, "SCW_DEFAULT_PROJECT_ID": secret,
	})
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

// TestNewlineIsSaid: what cannot be seen is named, and one at the end is no fault.
func TestNewlineIsSaid(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	cfg, _, err := load(nil, map[string]string{"SCW_ACCESS_KEY": "SCW00000000000000000\n", "SCW_SECRET_KEY": id[:8] + "\n" + id[8:], "SCW_DEFAULT_PROJECT_ID_FILE": writeFile(t, id+"\r\n")})
	if err != nil {
		t.Fatal(err)
	}
	verdict := cfg.Validate().Error()
	if !strings.Contains(verdict, "--secret-key (SCW_SECRET_KEY): a newline is inside the value") || strings.Contains(verdict, "--access-key") || strings.Contains(verdict, "--project-id") {
		t.Error(verdict)
	}
	if _, _, err := load(nil, map[string]string{"SCW_SECRET_KEY_FILE": writeFile(t, id+"\n\n"), "BIGFLEET_BOOTSTRAP_SECRET": strings.Repeat("s", 32) + "\n\n"}); err == nil ||
		!strings.Contains(err.Error(), "SCW_SECRET_KEY_FILE: the value ends in a newline") || !strings.Contains(err.Error(), "BIGFLEET_BOOTSTRAP_SECRET: the value ends in a newline") {
		t.Errorf("two line breaks: %v", err)
	}
	if _, _, err := load(nil, map[string]string{"SCW_DEFAULT_ZONE": ""}); err == nil || !strings.Contains(err.Error(), "SCW_DEFAULT_ZONE: set, but empty") {
		t.Errorf("an empty zone: %v", err)
	}
}

func TestLimitsOfCalls(t *testing.T) {
	for arg, want := range map[string]string{
		"--api-rate=0": "--api-rate: 0", "--api-rate=-1": "--api-rate: -1", "--api-rate=NaN": "--api-rate: NaN", "--api-rate=1e9": "10000 at most",
		"--api-burst=0": "--api-burst: 0", "--fake-scale=NaN": "--fake-scale: NaN", "--settle-window=1ms": "--settle-window: 1ms, want 1s or more",
	} {
		cfg, _, err := load([]string{"--use-fake-backend", arg}, nil)
		if err != nil {
			t.Errorf("%s: %v", arg, err)
			continue
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, want %q", arg, fmt.Sprint(err), want)
		}
	}
}
