package terminal

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ECMA-48 control sequences of a Screen.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearDown  = "\r\x1b[J"
)

// Screen is the last lines of a terminal, drawn again and again in place. What
// was above them stays. One goroutine uses it, and closes it.
type Screen struct {
	out   *Output
	drawn int // lines below the place where drawing begins
	begun bool
}

// NewScreen makes a screen; nothing is drawn yet. o must be Live.
func NewScreen(o *Output) *Screen { return &Screen{out: o} }

// Draw shows these lines in place of those before. Lines that are too long are
// cut, and so are more lines than the terminal has: a line that wrapped or
// scrolled away could not be drawn over.
func (s *Screen) Draw(lines []string) error { return s.draw("", lines) }

// Print writes a line that stays, and draws these lines below it.
func (s *Screen) Print(line string, lines []string) error { return s.draw(line+"\n", lines) }

func (s *Screen) draw(above string, lines []string) error {
	columns, rows := s.out.Size()
	if most := max(rows-1, 1); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… %d more lines", hidden))
	}
	var b strings.Builder
	if !s.begun {
		b.WriteString(hideCursor)
		s.begun = true
	}
	b.WriteString(s.back() + above)
	for _, l := range lines {
		b.WriteString(Clip(l, columns) + "\n")
	}
	s.drawn = len(lines)
	_, err := s.out.Write([]byte(b.String()))
	return err
}

// back moves to where drawing begins, and clears from there on.
func (s *Screen) back() string {
	if s.drawn == 0 {
		return clearDown
	}
	return fmt.Sprintf("\x1b[%dA", s.drawn) + clearDown
}

// Close leaves the lines as they are and gives the cursor back.
func (s *Screen) Close() error {
	if !s.begun {
		return nil
	}
	_, err := s.out.Write([]byte(showCursor))
	return err
}

// Clip cuts a line to a number of characters. Styles take none, and end where
// the line is cut.
func Clip(line string, columns int) string {
	shown, styled := 0, false
	for i := 0; i < len(line); {
		if line[i] == '\x1b' {
			end := strings.IndexByte(line[i:], 'm')
			if end < 0 {
				return line[:i]
			}
			styled = line[i:i+end+1] != "\x1b[0m"
			i += end + 1
			continue
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		if shown == columns-1 && utf8.RuneCountInString(plain(line[i:])) > 1 {
			if styled {
				return line[:i] + "…\x1b[0m"
			}
			return line[:i] + "…"
		}
		shown++
		i += size
	}
	return line
}

// plain is a line without its styles.
func plain(line string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(line, "\x1b")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, line, _ = strings.Cut(rest, "m")
	}
}

// Bar is a progress bar of a width in characters, for a part between 0 and 1.
func Bar(part float64, width int) string {
	full := int(max(0, min(1, part))*float64(width) + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Spin is the spinner's picture at the nth drawing.
func Spin(n int) string {
	pictures := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return string(pictures[n%len(pictures)])
}
