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
	style style
	// columns is the width of the terminal, asked anew for each drawing since
	// people resize; nil when there is no terminal.
	columns func() int
	began   time.Time

	rows  []row
	drawn int               // lines of the table on the terminal now
	told  map[string]string // by machine: what was last said of it, without a terminal
}

// newScreen writes to the file, and in place when that is a terminal which
// understands it. NO_COLOR in the environment turns colours off.
func newScreen(f *os.File) *screen {
	s := &screen{out: f, began: time.Now(), told: map[string]string{}}
	if terminal := width(f); terminal != nil && os.Getenv("TERM") != "dumb" {
		s.columns = terminal
		s.style = style(os.Getenv("NO_COLOR") == "")
		s.print(cursorHide)
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

// print writes and lets a failure go: there is nowhere else to say that the
// screen is gone, and the play's outcome is in the exit code.
func (s *screen) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
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
	s.story("   %s %s\n", s.style.bad("✗"), text)
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
	for _, r := range rows {
		line := fmt.Sprintf("%s  %-11s  %s  %s  %s", r.machine, r.state, orDash(r.host), orDash(r.cluster), r.event)
		if s.told[r.machine] != line {
			s.told[r.machine] = line
			s.print("   %6.1fs  %s\n", time.Since(s.began).Seconds(), line)
		}
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
