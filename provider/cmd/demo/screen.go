package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// screen is what the person at the demo sees: a story that scrolls and, on a
// terminal, the table of machines below it, redrawn in place. Anywhere else the
// table's changes become lines of the story. It is not safe for use by several
// goroutines.
type screen struct {
	out   io.Writer
	errs  io.Writer // what went wrong
	style style
	// failure is how an error is styled; errs may be elsewhere than out.
	failure style
	// columns is the width of the terminal, asked anew for each drawing since
	// people resize; nil when there is no terminal.
	columns func() int
	began   time.Time

	rows  []row
	gone  func()            // called when out cannot be written to; nil for nothing
	drawn int               // lines of the table on the terminal now
	told  map[string]string // by machine: what was last said of it, without a terminal
}

// newScreen writes to out, and in place when that is a terminal which
// understands it; to errs goes what went wrong. NO_COLOR in the environment
// turns colours off.
func newScreen(out, errs *os.File) *screen {
	s := &screen{out: out, errs: errs, began: time.Now(), told: map[string]string{}}
	dumb, colours := os.Getenv("TERM") == "dumb", style(os.Getenv("NO_COLOR") == "")
	if terminal := width(out); terminal != nil && !dumb {
		s.columns, s.style = terminal, colours
		s.print(cursorHide)
	}
	if width(errs) != nil && !dumb {
		s.failure = colours
	}
	return s
}

// What a terminal is told, in ECMA-48 control sequences.
const (
	cursorHide = "\x1b[?25l"
	cursorShow = "\x1b[?25h"
	cursorUp   = "\x1b[%dA"
	eraseBelow = "\x1b[J"
	eraseRight = "\x1b[K"
)

// width returns a function that measures the terminal, or nil when f is none.
func width(f *os.File) func() int {
	measure := func() (int, error) {
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0, err
		}
		return int(size.Col), nil
	}
	if _, err := measure(); err != nil {
		return nil
	}
	return func() int {
		n, err := measure()
		if err != nil || n == 0 {
			return 80 // what a terminal without a size is taken to have
		}
		return n
	}
}

// print writes; a play that nobody can watch any more is stopped.
func (s *screen) print(format string, args ...any) {
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil && s.gone != nil {
		s.gone()
	}
}

// heading opens a part of the play: its title and what it is to prove.
func (s *screen) heading(n int, title, claim string) {
	s.story("\n%s\n   %s\n", s.style.bold(fmt.Sprintf("%d. %s", n, title)), claim)
}

// proved closes a part with what was seen.
func (s *screen) proved(text string) { s.story("   %s %s\n", s.style.good("✓"), text) }

// failed says what went wrong.
func (s *screen) failed(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "\n     ")
	s.complain("   %s %s\n", s.failure.bad("✗"), text)
}

// complain writes to where errors go, below the last table.
func (s *screen) complain(format string, args ...any) {
	s.drawn = 0 // what follows must not be drawn over it
	_, _ = fmt.Fprintf(s.errs, format, args...)
}

// say adds a line to the story.
func (s *screen) say(format string, args ...any) { s.story("   "+format+"\n", args...) }

func (s *screen) story(format string, args ...any) {
	s.erase()
	s.print(format, args...)
	s.redraw()
}

// show replaces the table.
func (s *screen) show(rows []row) {
	s.rows = rows
	if s.columns != nil {
		s.redraw()
		return
	}
	// Machines to which the same has happened since the last look share a line.
	var lines []string
	alike := map[string][]string{} // their lines, by what has happened
	for _, r := range rows {
		line := fmt.Sprintf("%s  %-11s  %s  %s  %s", r.machine, r.state, orDash(r.host), orDash(r.cluster), r.event)
		if s.told[r.machine] == line {
			continue
		}
		s.told[r.machine] = line
		kind, _, _ := strings.Cut(r.event, " ")
		what := r.state + " " + kind
		if alike[what] == nil {
			lines = append(lines, what)
		}
		alike[what] = append(alike[what], line)
	}
	for _, what := range lines {
		line := alike[what][0]
		if more := len(alike[what]) - 1; more > 0 {
			line += fmt.Sprintf(", and %d more", more)
		}
		s.print("   %6.1fs  %s\n", time.Since(s.began).Seconds(), line)
	}
}

// redraw draws the table over itself. Lines are overwritten before what is left
// of the old ones is erased, so that nothing flickers.
func (s *screen) redraw() {
	if s.columns == nil || len(s.rows) == 0 {
		return
	}
	var text strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&text, cursorUp, s.drawn)
	}
	lines := append([]string{""}, table(s.rows, s.columns()-1, s.style)...)
	for _, line := range lines {
		text.WriteString(line + eraseRight + "\n")
	}
	text.WriteString(eraseBelow)
	s.drawn = len(lines)
	s.print("%s", text.String())
}

func (s *screen) erase() {
	if s.drawn > 0 {
		s.print(cursorUp+eraseBelow, s.drawn)
		s.drawn = 0
	}
}

// close leaves the terminal as it was found, the last table still on it.
func (s *screen) close() {
	if s.columns != nil {
		s.print(cursorShow)
	}
}
