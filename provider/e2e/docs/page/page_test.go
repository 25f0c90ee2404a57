package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := strings.ReplaceAll(`# Title

<!-- tested -->
'''sh
a
'''

1. Item

   <!-- tested with a provider -->
   '''sh
   if b; then
     c
   fi
   '''

<!-- tested in the background: now ready -->
'''sh
d
'''

<!-- tested: e.yaml -->
'''yaml
e: f
'''

<!-- output -->
'''
g
'''

'''sh
# Needs an account.
h
'''

<!-- tested by .ci/run -->
'''sh
make i
'''

'''json
{}
'''
`, "'''", "```")
	want := []Block{
		{Kind: Commands, Line: 5, Text: "a\n"},
		{Kind: Commands, Line: 12, Text: "if b; then\n  c\nfi\n", With: "a provider"},
		{Kind: Background, Line: 19, Text: "d\n", Name: "now ready"},
		{Kind: File, Line: 24, Text: "e: f\n", Name: "e.yaml"},
		{Kind: Output, Line: 29, Text: "g\n"},
		{Kind: Excused, Line: 33, Text: "# Needs an account.\nh\n"},
		{Kind: CI, Line: 39, Text: "make i\n"},
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"\n```sh\nrm -r x\n```\n":            "line 3: these commands",
		"```sh\n# A comment.\na\n```":        "line 2: these commands",
		"```\nmake x\n```":                   "line 2: commands belong",
		"```\nopen\n":                        "line 1: this block has no end",
		"<!-- tested -->\n\n```sh\na\n```\n": "line 4: these commands",
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
