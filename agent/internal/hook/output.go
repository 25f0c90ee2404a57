package hook

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"unicode"
)

const (
	tailRead   = 64 << 10 // what is read of the end of a hook's output
	tailLines  = 20       // what is reported of it
	tailBytes  = 2 << 10
	outputSize = 1 << 20 // past this a hook's output file is cut down
)

// tail returns the last lines of the file at path without secrets.
func tail(path string, r *Redactor) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := readEnd(f)
	if err != nil {
		return "", err
	}
	return lastLines(r.Redact(text)), nil
}

// readEnd returns the end of f from the beginning of a line: half a line could
// be half a secret, which no pattern matches.
func readEnd(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	start := max(0, info.Size()-tailRead)
	buf, err := io.ReadAll(io.NewSectionReader(f, start, tailRead))
	if err != nil {
		return "", err
	}
	if start > 0 {
		_, rest, found := bytes.Cut(buf, []byte("\n"))
		if !found {
			return "[output without line breaks]", nil
		}
		buf = rest
	}
	return strings.ToValidUTF8(string(buf), "?"), nil
}

// lastLines shortens text to what an ack can carry, in one line.
func lastLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return ' '
			}
			return c
		}, line))
		if line != "" {
			lines = append(lines, line)
		}
	}
	lines = lines[max(0, len(lines)-tailLines):]
	out := strings.Join(lines, " | ")
	if len(out) > tailBytes {
		out = "… " + strings.ToValidUTF8(out[len(out)-tailBytes:], "")
	}
	return out
}

// trim keeps the output file at path from filling the tmpfs: past outputSize
// only its end stays. The writers append, so they go on after it.
func trim(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= outputSize {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	text, err := readEnd(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return overwrite(path, "[earlier output was cut]\n"+text)
}

// overwrite replaces what is in the file and not the file: a daemon may hold it.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
