package provider

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the list of flags into docs/configuration.md")

// furtherReading is where the pages say more about a flag.
var furtherReading = map[string]string{
	"substrate":                 "elastic-metal.md",
	"use-fake-backend":          "fakecloud.md",
	"offerings":                 "offerings.md",
	"state":                     "operations.md#state-file",
	"admin-socket":              "capacityctl.md#backup",
	"access-key":                "credentials.md#1-the-api-key",
	"base-user-data":            "bootstrap.md#your-own-user-data",
	"api-rate":                  "operations.md#api-budget",
	"eur-usd":                   "pricing.md",
	"price-refresh":             "pricing.md",
	"reconcile-interval":        "operations.md#reconcile",
	"removal-cap":               "operations.md#reconcile",
	"type-pause":                "operations.md#refused-types",
	"bootstrap-endpoint":        "bootstrap.md#the-channel",
	"bootstrap-secret":          "bootstrap.md#token",
	"bootstrap-secret-previous": "bootstrap.md#changing-the-secret",
	"agent-install":             "images.md",
	"agent-apt-uri":             "agent-package.md#an-apt-repository",
	"tls-cert":                  "security.md#the-grpc-port",
	"tls-reload":                "security.md#replaced-certificates",
	"require-shard-identity":    "security.md#the-grpc-port",
	"metrics-addr":              "observability.md#ports",
	"log-format":                "observability.md#logs",
	"failed-retention":          "operations.md#failed-machines",
	"fake-hosts":                "fakecloud.md#hosts",
}

// TestEveryFlagIsDocumented holds docs/configuration.md to the program's flags,
// their defaults and the variables they fall back to. With -update it writes
// them there.
func TestEveryFlagIsDocumented(t *testing.T) {
	const page = "../docs/configuration.md"
	begin, end := []byte("<!-- flags: generated -->\n"), []byte("<!-- end of flags -->\n")
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(content, begin)
	have, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	want := flagTables()
	if *update {
		if err := os.WriteFile(page, bytes.Join([][]byte{before, begin, want, end, after}, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Errorf("%s is not what the program says; run make generate (-want +page):\n%s", page, diff)
	}
	all := (&Config{}).flags()
	for name := range furtherReading {
		if all.Lookup(name) == nil {
			t.Errorf("furtherReading: there is no --%s", name)
		}
	}
}

// code is what a usage text has in it that a page shows as code.
var code = regexp.MustCompile(`--[a-z]+[a-z-]*(=[a-z-]+)?|[a-z-]+_\*_ARCH\.deb|/(metrics|healthz|readyz)\b`)

// flagTables are the groups of flags as Markdown.
func flagTables() []byte {
	variables := map[string]string{}
	for _, e := range environment {
		variables[e.flag] = e.variable
	}
	var b bytes.Buffer
	for _, g := range (&Config{}).flagGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.note != "" {
			fmt.Fprintf(&b, "%s\n\n", code.ReplaceAllString(g.note, "`$0`"))
		}
		b.WriteString("| Flag | Default | Environment | Meaning |\n|---|---|---|---|\n")
		g.flags.VisitAll(func(f *pflag.Flag) {
			value, variable := f.DefValue, variables[f.Name]
			if f.Name == "zone" { // Load sets it, after the environment
				value = defaultZone
			}
			_, meaning := pflag.UnquoteUsage(f)
			meaning = strings.TrimSuffix(meaning, " (env "+variable+")")
			meaning = code.ReplaceAllString(strings.ToUpper(meaning[:1])+meaning[1:], "`$0`") + "."
			if more, ok := furtherReading[f.Name]; ok {
				meaning += fmt.Sprintf(" [More](%s).", more)
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", f.Name, inCode(value, "none"), inCode(variable, ""), meaning)
		})
	}
	b.WriteString("\n")
	return b.Bytes()
}

// inCode marks a value as code; empty stands for none.
func inCode(value, empty string) string {
	if value == "" {
		return empty
	}
	return "`" + value + "`"
}
