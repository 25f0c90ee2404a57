package scaleway

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bigfleet-providers/provider"
)

// TestServiceUnit holds the unit file to the program: every flag exists, every
// setting that it takes from the environment file is in the example, and
// together they leave nothing to report but the files that are not here.
func TestServiceUnit(t *testing.T) {
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	unit, env := read("../../deploy/systemd/bigfleet-scaleway.service"), read("../../deploy/systemd/scaleway.env.example")
	settings := map[string]string{}
	for line := range strings.Lines(env) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			settings[name] = value
		}
	}
	_, command, _ := strings.Cut(unit, "\nExecStart=/usr/local/bin/bigfleet-scaleway ")
	command, _, _ = strings.Cut(command, "\nRestart=")
	dir := t.TempDir()
	command = strings.NewReplacer("\\\n", " ", "%S", dir, "%d", dir, "%t", dir).Replace(command)
	command = regexp.MustCompile(`\$(\w+|\{\w+\})`).ReplaceAllStringFunc(command, func(ref string) string {
		value, ok := settings[strings.Trim(ref, "${}")]
		if !ok {
			t.Errorf("%s is not in the example", ref)
		}
		return value
	})
	lookup := func(name string) (string, bool) {
		if name == "SCW_SECRET_KEY" {
			return "11111111-1111-4111-8111-111111111111", true
		}
		if name == "BIGFLEET_BOOTSTRAP_SECRET" {
			return strings.Repeat("s", 32), true
		}
		value, ok := settings[name]
		return value, ok
	}
	cfg, err := provider.Load(Vendor(), strings.Fields(command), lookup)
	if err != nil {
		t.Fatal(err)
	}
	faults := strings.Split(cfg.Validate().Error(), "\n")
	faults = slices.DeleteFunc(faults, func(f string) bool {
		return strings.Contains(f, "no such file") || strings.Contains(f, "--agent-packages") || strings.Contains(f, "--state")
	})
	if len(faults) > 0 {
		t.Errorf("beside missing files:\n%s", strings.Join(faults, "\n"))
	}
}
