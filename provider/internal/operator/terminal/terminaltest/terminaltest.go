// Package terminaltest gives tests a pseudo-terminal, and shows what a person
// would see on it.
package terminaltest

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo-terminal. What programs write to TTY is drawn on it.
type Terminal struct {
	// TTY is what a program gets as its standard streams.
	TTY *os.File

	keys *os.File
	mu   sync.Mutex
	raw  strings.Builder
}

// Open opens a terminal of a size, which ends with the test.
func Open(t *testing.T, columns, rows uint16) *Terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{TTY: tty, keys: keys}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			term.mu.Lock()
			term.raw.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return // EIO: nobody has the other end open any more
			}
		}
	}()
	t.Cleanup(func() {
		if err := tty.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		<-read
		keys.Close()
	})
	return term
}

// Type types text.
func (t *Terminal) Type(text string) error {
	_, err := t.keys.WriteString(text)
	return err
}

// Raw is all that was written, with every control sequence.
func (t *Terminal) Raw() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raw.String()
}

// String is what a person sees now.
func (t *Terminal) String() string { return Render(t.Raw()) }

var control = regexp.MustCompile(`^\x1b\[([0-9;?]*)([AJmlh])`)

// Render draws text with the control sequences that a Screen uses. One that it
// does not know is shown.
func Render(raw string) string {
	lines, row, column := [][]rune{nil}, 0, 0
	for len(raw) > 0 {
		if m := control.FindStringSubmatch(raw); m != nil {
			switch m[2] {
			case "A":
				up, err := strconv.Atoi(m[1])
				if err != nil || up > row {
					return fmt.Sprintf("%q goes %d lines up from line %d", m[0], up, row)
				}
				row -= up
			case "J":
				lines = append(lines[:row:row], lines[row][:min(column, len(lines[row]))])
			}
			raw = raw[len(m[0]):]
			continue
		}
		r, size := utf8.DecodeRuneInString(raw)
		raw = raw[size:]
		switch r {
		case '\r':
			column = 0
		case '\n':
			row++
			if row == len(lines) {
				lines = append(lines, nil)
			}
		default:
			for len(lines[row]) <= column {
				lines[row] = append(lines[row], ' ')
			}
			lines[row][column] = r
			column++
		}
	}
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimRight(string(l), " "))
	}
	return strings.Join(out, "\n")
}
