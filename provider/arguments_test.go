package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// channelVendor has the flags of the bootstrap channel, too.
func channelVendor() Vendor {
	v := toyVendor()
	v.Delivers = false
	return v
}

// TestSecretsOfACommandLineAreNotQuoted: people mistype the flag, its equals sign
// or its dashes, and what follows is a secret all the same.
func TestSecretsOfACommandLineAreNotQuoted(t *testing.T) {
	for _, secret := range []string{"0123456789abcdef0123456789abcdef", "11111111-2222-4333-8444-555555555555", "SCWXXXXXXXXXXXXXXXXX"} {
		for _, flag := range []string{"bootstrap-secret", "token", "bootstrap-secret-previous"} {
			for _, args := range [][]string{
				{"--" + flag, "=", secret}, {"--" + flag + "=", secret}, {"--" + flag + " = " + secret}, {"--" + flag + " " + secret}, {"--" + flag + ":" + secret}, {"--" + flag + secret},
				{"-" + flag, secret}, {"-" + flag + "=" + secret}, {"---" + flag + "=" + secret}, {"—" + flag + "=" + secret}, {"--=" + secret}, {"-" + secret}, {"--" + secret},
				{flag, secret}, {flag + "=" + secret}, {flag, "=", secret}, {secret}, {"--", secret}, {"--" + flag[1:] + "=" + secret}, {"--" + flag[1:], secret},
				{"--" + strings.ToUpper(flag) + "=" + secret}, {"--live=" + secret}, {"--live", secret}, {"--seed-count=" + secret}, {"--create-timeout", secret}, {"--eur-usd=" + secret},
				{"--allow-random-secret=" + secret}, {"--allow-random-secret", secret},
			} {
				for _, command := range []string{"serve", checkCommand, "version", secret} {
					var out, errs strings.Builder
					if code := Main(channelVendor(), "test", append([]string{command}, args...), &out, &errs); code != exitUsage {
						t.Errorf("%q: exit code %d", args, code)
					}
					if text := out.String() + errs.String(); strings.Contains(text, secret) || strings.Contains(text, secret[4:]) {
						t.Errorf("%s %q: the secret is in\n%s", command, args, text)
					}
				}
			}
		}
	}
}

// TestGivenButEmpty: every flag of text needs its value, but for those that say
// what it means when it is empty.
func TestGivenButEmpty(t *testing.T) {
	may := map[string]bool{"metrics-addr": true}
	newConfig(channelVendor()).flagSet().VisitAll(func(fl *pflag.Flag) {
		if fl.Value.Type() != "string" {
			return
		}
		for _, args := range [][]string{{"--" + fl.Name + "="}, {"--" + fl.Name, ""}} {
			cfg, err := Load(channelVendor(), args, lookupIn(nil))
			if want := !may[fl.Name]; want != (err != nil) || want && (!strings.Contains(err.Error(), "--"+fl.Name+": given, but empty") || !cfg.Unread(fl.Name)) {
				t.Errorf("%q: %v", args, err)
			}
			if may[fl.Name] && !strings.Contains(fl.Usage, "empty") {
				t.Errorf("--%s may be empty, and its usage does not say what that means", fl.Name)
			}
		}
	})
	// Main judges the rest as well, and says everything at once.
	var out, errs strings.Builder
	if code := Main(toyVendor(), "test", []string{"--tls-ca=", "--addr=", "--seed-count=0", "--token=sesame"}, &out, &errs); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--tls-ca: given, but empty; give it its file", "--addr: given, but empty; give it its address", "--seed-count: 0"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is not in\n%s", want, &errs)
		}
	}
}

// TestOneLineBreakIsDropped, wherever the value comes from, and of more the
// message says what they are.
func TestOneLineBreakIsDropped(t *testing.T) {
	sources := map[string]func(t *testing.T, value string) (args []string, vars map[string]string){
		"--token": func(_ *testing.T, value string) ([]string, map[string]string) {
			return []string{"--token=" + value}, nil
		},
		"TOY_TOKEN": func(_ *testing.T, value string) ([]string, map[string]string) {
			return nil, map[string]string{"TOY_TOKEN": value}
		},
		"TOY_TOKEN_FILE": func(t *testing.T, value string) ([]string, map[string]string) {
			return nil, map[string]string{"TOY_TOKEN_FILE": writeFile(t, value)}
		},
	}
	for source, set := range sources {
		for value, want := range map[string]string{
			"sesame": "sesame", "sesame\n": "sesame", "sesame\r\n": "sesame", "se\nsame": "se\nsame",
			"sesame\n\n": "", "sesame\r\n\r\n": "", "sesame\n\r\n": "", "sesame\r": "", "\n": "", "\r\n": "", "\n\n": "",
		} {
			args, vars := set(t, value)
			cfg, err := Load(toyVendor(), args, lookupIn(vars))
			got := cfg.settings.(*toy).token
			switch {
			case strings.TrimSpace(value) == "":
				if err == nil || !strings.Contains(err.Error(), source) || !strings.Contains(err.Error(), "empty") {
					t.Errorf("%s of %q: %v", source, value, err)
				}
			case want != "" && (err != nil || got != want):
				t.Errorf("%s of %q: %q, %v; want %q", source, value, got, err, want)
			case want == "" && (err == nil || got != "" || !strings.Contains(err.Error(), source) || strings.Contains(err.Error(), "sesame")):
				t.Errorf("%s of %q: %q, %v", source, value, got, err)
			case want == "" && source != "TOY_TOKEN_FILE" && !strings.Contains(err.Error(), "newline"):
				t.Errorf("%s of %q: %v does not say newline", source, value, err)
			}
		}
	}
}

// TestEmptyVariables are no unset ones.
func TestEmptyVariables(t *testing.T) {
	file := writeFile(t, "sesame\n")
	for want, vars := range map[string]map[string]string{
		"TOY_TOKEN: set, but empty":                             {"TOY_TOKEN": ""},
		"TOY_TOKEN_FILE: set, but empty":                        {"TOY_TOKEN_FILE": ""},
		"TOY_TOKEN and TOY_TOKEN_FILE are both set":             {"TOY_TOKEN": "", "TOY_TOKEN_FILE": file},
		fmt.Sprintf("TOY_TOKEN_FILE: %s is empty", "/dev/null"): {"TOY_TOKEN_FILE": os.DevNull},
		"TOY_TOKEN_FILE: open ":                                 {"TOY_TOKEN_FILE": filepath.Join(file, "x")},
	} {
		cfg, err := Load(toyVendor(), nil, lookupIn(vars))
		if err == nil || !strings.Contains(err.Error(), want) || !cfg.Unread("token") {
			t.Errorf("%v: %v, want %q", vars, err, want)
		}
		// A flag wins, and then nothing is read.
		if cfg, err := Load(toyVendor(), []string{"--token=sesame"}, lookupIn(vars)); err != nil || cfg.settings.(*toy).token != "sesame" {
			t.Errorf("%v beside the flag: %v", vars, err)
		}
	}
}
