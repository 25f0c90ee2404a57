package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var someRows = []row{
	{machine: "demo-dev1-s-72182b-0001", state: "SPECULATIVE", event: "offered"},
	{machine: "demo-dev1-s-72182b-0002", state: "CREATING", elapsed: 1250 * time.Millisecond, event: "op 7b0e61f2"},
	{machine: "demo-dev1-s-72182b-0003", state: "CONFIGURED", host: "0d2f81aa", cluster: "prod-1", elapsed: 3 * time.Second, event: "done 90ad1c22"},
	{machine: "demo-dev1-s-72182b-0004", state: "FAILED", host: "77aa12cd", event: "boot: no capacity for DEV1-S in fr-par-1 (out of stock)"},
}

func TestTable(t *testing.T) {
	for name, lines := range map[string][]string{
		"wide":     table(someRows, 100, false),
		"narrow":   table(someRows, 50, false),
		"coloured": table(someRows, 100, true),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name+".txt", strings.Join(lines, "\n")+"\n") })
	}
}

func TestTableKeepsToTheWidth(t *testing.T) {
	for width := range 150 {
		for _, line := range table(someRows, width, false) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Fatalf("a line of %d characters at width %d: %q", n, width, line)
			}
		}
	}
}

func TestAbbreviate(t *testing.T) {
	for id, want := range map[string]string{"": "", "abc": "abc", "0d2f81aa-1c2d-4e5f": "0d2f81aa"} {
		if got := abbreviate(id); got != want {
			t.Errorf("abbreviate(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestScreenWithoutTerminalTellsChangesOnly(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, began: time.Now(), told: map[string]string{}}
	s.heading(1, "Create", "Slots become servers.")
	s.show(someRows[:2])
	s.show(someRows[:2])
	moved := []row{someRows[0], {machine: "demo-dev1-s-72182b-0002", state: "IDLE", host: "0d2f81aa", elapsed: time.Second, event: "done 7b0e61f2"}}
	s.show(moved)
	moved[1].elapsed = time.Minute // time alone is no news
	s.show(moved)
	s.show([]row{
		{machine: "demo-dev1-s-72182b-0001", state: "DELETING", host: "a", event: "op 1"},
		{machine: "demo-dev1-s-72182b-0002", state: "DELETING", host: "b", event: "op 2"},
	})
	s.proved("2 servers")
	s.close()
	golden(t, "plain.txt", out.String())
}

func TestScreenOnTerminalRedrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, columns: func() int { return 100 }, began: time.Now()}
	s.heading(1, "Create", "Slots become servers.")
	s.show(someRows[:1])
	s.show(someRows[1:2])
	s.proved("2 servers")
	s.close()
	golden(t, "terminal.txt", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
}

// golden compares with a file of testdata; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
