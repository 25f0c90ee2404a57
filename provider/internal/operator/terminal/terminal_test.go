package terminal_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/operator/terminal"
	"bigfleet-providers/provider/internal/operator/terminal/terminaltest"
)

// await polls until a terminal shows text.
func await(t *testing.T, term *terminaltest.Terminal, text string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(term.Raw(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never showed %q: %q", text, term.Raw())
		}
	}
}

// TestColours: on a terminal, unless the environment or the flag says else.
func TestColours(t *testing.T) {
	term := terminaltest.Open(t, 80, 24)
	for name, tt := range map[string]struct {
		when         terminal.When
		plain        bool // no terminal
		vars         map[string]string
		colour, live bool
	}{
		"terminal":            {when: terminal.Auto, colour: true, live: true},
		"file":                {when: terminal.Auto, plain: true},
		"file, always":        {when: terminal.Always, plain: true, colour: true},
		"never":               {when: terminal.Never, live: true},
		"NO_COLOR":            {when: terminal.Auto, vars: map[string]string{"NO_COLOR": "1"}, live: true},
		"NO_COLOR, empty":     {when: terminal.Auto, vars: map[string]string{"NO_COLOR": ""}, colour: true, live: true},
		"NO_COLOR and always": {when: terminal.Always, vars: map[string]string{"NO_COLOR": "1"}, colour: true, live: true},
		"dumb":                {when: terminal.Auto, vars: map[string]string{"TERM": "dumb"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			for k, v := range tt.vars {
				t.Setenv(k, v)
			}
			o := terminal.NewOutput(term.TTY, tt.when)
			if tt.plain {
				o = terminal.NewOutput(new(bytes.Buffer), tt.when)
			}
			if o.Colour != tt.colour || o.Live != tt.live {
				t.Errorf("colour %t, live %t, want %t, %t", o.Colour, o.Live, tt.colour, tt.live)
			}
			if painted := o.Paint(terminal.Red, "x"); (painted == "\x1b[31mx\x1b[0m") != tt.colour {
				t.Errorf("painted: %q", painted)
			}
		})
	}
	var w terminal.When
	if err := w.Set("pink"); err == nil || !strings.Contains(err.Error(), "auto, always or never") {
		t.Errorf("pink: %v", err)
	}
}

func TestTable(t *testing.T) {
	table := terminal.Table{Header: []string{"A", "LONG", "C"}}
	table.Add("grün", "x", "last")
	table.Rows = append(table.Rows, []terminal.Cell{{Text: "b"}, {Text: "\x1b[2J", Style: terminal.Red}, {}})
	plain := "A     LONG  C\ngrün  x     last\nb     ·[2J  \n"
	var b bytes.Buffer
	if err := table.Write(terminal.NewOutput(&b, terminal.Never)); err != nil || b.String() != plain {
		t.Errorf("%v, %q, want %q", err, b.String(), plain)
	}
	b.Reset()
	if err := table.Write(terminal.NewOutput(&b, terminal.Always)); err != nil || !strings.Contains(b.String(), "\x1b[31m·[2J\x1b[0m") {
		t.Errorf("%v, %q", err, b.String())
	}
	if got := terminaltest.Render(strings.ReplaceAll(b.String(), "\n", "\r\n")); got != strings.ReplaceAll(plain, "·[2J  \n", "·[2J\n") {
		t.Errorf("colours move the columns:\n%s", got)
	}
}

// TestScreen: lines are replaced, those that were printed stay, and nothing is
// drawn that could not be drawn over.
func TestScreen(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := terminaltest.Open(t, 15, 5)
	s := terminal.NewScreen(terminal.NewOutput(term.TTY, terminal.Never))
	steps := []error{
		s.Draw([]string{"one", "two", "three"}),
		s.Draw([]string{"0123456789abcdefg"}),
		s.Print("stays", []string{"x", "y"}),
		s.Draw([]string{"1", "2", "3", "4", "5", "6"}),
		s.Close(),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	await(t, term, "\x1b[?25h")
	if diff := cmp.Diff("stays\n1\n2\n3\n… 3 more lines\n", term.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, want := range []string{"0123456789abcd…\r\n", "\x1b[?25l"} {
		if !strings.Contains(term.Raw(), want) {
			t.Errorf("no %q in %q", want, term.Raw())
		}
	}
}

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		line string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöüß", 3, "äö…"},
		{"\x1b[31mabc\x1b[0m", 3, "\x1b[31mabc\x1b[0m"},
		{"\x1b[31mabcd\x1b[0m", 3, "\x1b[31mab…\x1b[0m"},
		{"\x1b[31mab\x1b[0mcd", 3, "\x1b[31mab\x1b[0m…"},
		{"ab\x1b[31", 9, "ab"},
		{"", 3, ""},
	} {
		if got := terminal.Clip(tt.line, tt.n); got != tt.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tt.line, tt.n, got, tt.want)
		}
	}
}

func TestBar(t *testing.T) {
	for part, want := range map[float64]string{-1: "░░░░", 0: "░░░░", 0.5: "██░░", 1: "████", 7: "████"} {
		if got := terminal.Bar(part, 4); got != want {
			t.Errorf("Bar(%v) = %s, want %s", part, got, want)
		}
	}
}

func TestReadLine(t *testing.T) {
	term := terminaltest.Open(t, 80, 24)
	if err := term.Type("yes\nmore"); err != nil {
		t.Fatal(err)
	}
	if line, err := terminal.ReadLine(t.Context(), term.TTY); err != nil || line != "yes" {
		t.Errorf("got %q, %v", line, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if line, err := terminal.ReadLine(ctx, term.TTY); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing was typed to the end: %q, %v", line, err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminal.IsTerminal(file) || !terminal.IsTerminal(term.TTY) {
		t.Error("a terminal is not told from a file")
	}
}
