package hook

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	tailRead  = 64 << 10 // what is read of the end of a hook's output
	tailLines = 20       // what is reported of it
	tailBytes = 2 << 10
	unbroken  = "[output without line breaks]"
	drainWait = 500 * time.Millisecond // for the keeper to see the pipe's end
)

// outputFiles are the pieces that the keeper makes, the newest first. A piece
// only ever moves to a later name.
var outputFiles = []string{"stderr.new", "stderr", "stderr.old"}

func outcomePath(job Job) string { return filepath.Join(job.Dir, "outcome") }

// explain returns the last lines of what the job printed without secrets. The
// agent that looks first finds that in the keeper's files, a later one in the
// outcome.
func explain(job Job, r *Redactor) (string, error) {
	text, err := os.ReadFile(outcomePath(job))
	if !errors.Is(err, fs.ErrNotExist) {
		return string(text), err
	}
	// The hook's end may be known before its last line is in a file. A daemon
	// that is left holds the pipe open: then this waits in vain.
	for end := time.Now().Add(drainWait); time.Now().Before(end); time.Sleep(look / 10) {
		if _, err := os.Stat(filepath.Join(job.Dir, "drained")); err == nil {
			break
		}
	}
	raw, err := readOutput(job)
	return lastLines(r.Redact(raw)), err
}

// readOutput returns the end of the job's output from the beginning of a line:
// half a line could be half a secret, which no pattern matches.
func readOutput(job Job) (string, error) {
	var buf []byte
	begun := true
	for _, name := range slices.Backward(outputFiles) {
		piece, err := os.ReadFile(filepath.Join(job.Dir, name)) // the keeper bounds it
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		// A third piece says that there may have been a fourth.
		begun = begun && name != outputFiles[len(outputFiles)-1]
		buf = append(buf, piece...)
	}
	if len(buf) > tailRead {
		buf, begun = buf[len(buf)-tailRead:], false
	}
	if !begun {
		_, rest, found := bytes.Cut(buf, []byte("\n"))
		if !found {
			return unbroken, nil
		}
		buf = rest
	}
	return strings.ToValidUTF8(string(buf), "?"), nil
}

// forget puts text, which has no secrets, in place of what the job printed, and
// tells the keeper that nobody will look at more.
func forget(job Job, text string) error {
	errs := []error{writeOutcome(job, text)}
	for _, name := range outputFiles { // in the order in which the keeper moves them
		if err := os.Remove(filepath.Join(job.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func writeOutcome(job Job, text string) error {
	temp := outcomePath(job) + ".new"
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, outcomePath(job))
}

// colour is what a program writes to a terminal, whose letters would stay when
// the control character goes (ECMA-48, control sequences).
var colour = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// lastLines shortens text to what an ack can carry, in one line.
func lastLines(text string) string {
	var lines []string
	for line := range strings.Lines(colour.ReplaceAllString(text, "")) {
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
