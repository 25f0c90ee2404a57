// Package terminal writes for an operator's eyes: colours, tables, and a screen
// that is drawn again in place. Where the output is no terminal it writes plain
// text only.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// When says when colours are used: --color.
type When string

// The values of When. Auto means on a terminal, unless NO_COLOR is set
// (no-color.org) or TERM is dumb.
const (
	Auto   When = "auto"
	Always When = "always"
	Never  When = "never"
)

// Set reads a value; with String and Type it makes When a flag.
func (w *When) Set(text string) error {
	switch v := When(text); v {
	case Auto, Always, Never:
		*w = v
		return nil
	default:
		return fmt.Errorf("want %s, %s or %s", Auto, Always, Never)
	}
}

func (w *When) String() string { return string(*w) }

// Type is the value's name in a help text.
func (*When) Type() string { return "when" }

// Output is where a command writes to.
type Output struct {
	io.Writer
	// Colour says that text may be coloured.
	Colour bool
	// Live says that lines may be drawn again: it is a terminal that can move its
	// cursor.
	Live bool

	fd int
}

// NewOutput looks at what w is.
func NewOutput(w io.Writer, colour When) *Output {
	o := &Output{Writer: w, Colour: colour == Always, fd: -1}
	if f, ok := w.(*os.File); ok && IsTerminal(f) {
		o.fd = int(f.Fd())
		o.Live = os.Getenv("TERM") != "dumb"
		o.Colour = o.Colour || colour == Auto && o.Live && os.Getenv("NO_COLOR") == ""
	}
	return o
}

// IsTerminal says whether a person may sit at the other end of a stream.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Size is the terminal's width and height in characters; 80 by 24 when it does
// not say.
func (o *Output) Size() (columns, rows int) {
	if o.fd >= 0 {
		if ws, err := unix.IoctlGetWinsize(o.fd, unix.TIOCGWINSZ); err == nil && ws.Col > 0 && ws.Row > 0 {
			return int(ws.Col), int(ws.Row)
		}
	}
	return 80, 24
}

// Style is how text is shown: a parameter of ECMA-48's SGR. The zero Style is
// plain.
type Style string

// The styles.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Blue   Style = "34"
	Cyan   Style = "36"
)

// Paint returns the text in a style, if colours are used.
func (o *Output) Paint(s Style, text string) string {
	if !o.Colour || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Printable replaces what would command a terminal instead of being shown: some
// of the text comes from hosts.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}

// readPause is between two looks at whether a wait for a line has ended.
const readPause = 100 * time.Millisecond

// maxLine bounds a line that is typed.
const maxLine = 4096

// ReadLine reads a line from a terminal, without its end. It returns early when
// ctx ends: a read from a terminal alone would not.
func ReadLine(ctx context.Context, f *os.File) (string, error) {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	var line []byte
	for buf := make([]byte, 1); len(line) < maxLine; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		switch n, err := unix.Poll(fds, int(readPause.Milliseconds())); {
		case errors.Is(err, unix.EINTR) || err == nil && n == 0:
			continue
		case err != nil:
			return "", err
		}
		switch n, err := f.Read(buf); {
		case err != nil:
			return "", err
		case n == 0 || buf[0] == '\n':
			return string(line), nil
		}
		line = append(line, buf[0])
	}
	return string(line), nil
}
