package provider

import (
	"fmt"
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
		code := Main(toyVendor(), "test", []string{checkCommand, "--token=sesame", "--state=" + path}, &out, &errs)
		switch {
		case want == "" && code != exitOK:
			t.Errorf("%s: exit code %d: %s", path, code, &errs)
		case want != "" && (code != exitUsage || !strings.Contains(errs.String(), "--state: "+path+": ") || !strings.Contains(errs.String(), want)):
			t.Errorf("%s: exit code %d, want %d and %q: %s", path, code, exitUsage, want, &errs)
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
