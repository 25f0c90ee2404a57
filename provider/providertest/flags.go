// Package providertest is what the tests of every vendor's package share.
package providertest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"bigfleet-providers/provider"
)

// furtherReading is where the pages say more about a flag that is not one vendor's.
var furtherReading = map[string]string{
	"use-fake-backend":          "fakecloud.md",
	"offerings":                 "offerings.md",
	"state":                     "operations.md#state-file",
	"admin-socket":              "capacityctl.md#backup",
	"base-user-data":            "bootstrap.md#your-own-user-data",
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
}

// Page is the page of a vendor's flags.
type Page struct {
	Path string
	// FurtherReading is where the pages say more about the vendor's own flags, by
	// their names.
	FurtherReading map[string]string
	// Defaults are those that the program sets only after it has read the environment.
	Defaults map[string]string
}

// Flags holds the page to the flags of the vendor's program, their defaults and the
// variables they fall back to; or, to update it, writes them there.
func Flags(t *testing.T, v provider.Vendor, p Page, update bool) {
	t.Helper()
	begin, end := []byte("<!-- flags: generated -->\n"), []byte("<!-- end of flags -->\n")
	content, err := os.ReadFile(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(content, begin)
	have, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the lines %q and %q", p.Path, begin, end)
	}
	groups := provider.FlagGroups(v)
	all := provider.NewFlagSet()
	for _, g := range groups {
		all.AddFlagSet(g.Flags)
	}
	reading := maps.Clone(furtherReading)
	if v.Delivers { // the channel's flags are not there
		maps.DeleteFunc(reading, func(name, _ string) bool { return all.Lookup(name) == nil })
	}
	maps.Copy(reading, p.FurtherReading)
	for name := range reading {
		if all.Lookup(name) == nil {
			t.Errorf("further reading: there is no --%s", name)
		}
	}
	want := p.tables(groups, reading)
	if update {
		if err := os.WriteFile(p.Path, bytes.Join([][]byte{before, begin, want, end, after}, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Errorf("%s is not what the program says; run make generate (-want +page):\n%s", p.Path, diff)
	}
}

// code is what a usage text has in it that a page shows as code.
var code = regexp.MustCompile(`--[a-z]+[a-z-]*(=[a-z-]+)?|[a-z-]+_\*_ARCH\.deb|/(metrics|healthz|readyz)\b`)

// variable is what the usage of a flag ends with that falls back to one.
var variable = regexp.MustCompile(` \(env ([A-Z0-9_]+)\)$`)

// tables are the groups of flags as Markdown.
func (p Page) tables(groups []provider.FlagGroup, reading map[string]string) []byte {
	var b bytes.Buffer
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Title)
		if g.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", code.ReplaceAllString(g.Note, "`$0`"))
		}
		b.WriteString("| Flag | Default | Environment | Meaning |\n|---|---|---|---|\n")
		g.Flags.VisitAll(func(f *pflag.Flag) {
			value, env := f.DefValue, ""
			if later, ok := p.Defaults[f.Name]; ok {
				value = later
			}
			_, meaning := pflag.UnquoteUsage(f)
			if m := variable.FindStringSubmatch(meaning); m != nil {
				env, meaning = m[1], strings.TrimSuffix(meaning, m[0])
			}
			meaning = code.ReplaceAllString(strings.ToUpper(meaning[:1])+meaning[1:], "`$0`") + "."
			if more, ok := reading[f.Name]; ok {
				meaning += fmt.Sprintf(" [More](%s).", more)
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", f.Name, inCode(value, "none"), inCode(env, ""), meaning)
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
