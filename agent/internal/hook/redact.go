package hook

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
)

const (
	minLine = 8  // a shorter line of a blob gives nothing away
	minWord = 16 // as does a shorter word: paths and options stay readable
	column  = 76 // where base64(1) breaks its lines
	cut     = "[redacted]"
)

// Redactor cuts secrets out of what a hook printed.
type Redactor struct{ patterns []string }

// NewRedactor returns a redactor for the token and the blob: it cuts them whole,
// in base64, and each line and long word of the blob, since a hook that fails
// tends to print the line it failed on.
func NewRedactor(token string, blob []byte) *Redactor {
	set := map[string]struct{}{}
	add := func(s string, least int) {
		if s = strings.TrimSpace(s); len(s) >= least {
			set[s] = struct{}{}
		}
	}
	encodings := []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}
	for _, secret := range [][]byte{[]byte(token), blob, bytes.TrimSpace(blob)} {
		add(string(secret), 1)
		if len(secret) == 0 {
			continue
		}
		for _, e := range encodings {
			text := e.EncodeToString(secret)
			add(text, 1)
			for chunk := range slices.Chunk([]byte(text), column) {
				add(string(chunk), minWord)
			}
		}
	}
	if raw := strings.TrimRight(token, "="); raw != token {
		add(raw, 1)
	}
	for line := range strings.Lines(string(blob)) {
		add(line, minLine)
		for _, word := range strings.FieldsFunc(line, isBreak) {
			add(word, minWord)
		}
	}
	r := &Redactor{}
	for p := range set {
		r.patterns = append(r.patterns, p)
	}
	// The longest first, or cutting a word would leave the rest of its line.
	slices.SortFunc(r.patterns, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	return r
}

func isBreak(c rune) bool { return strings.ContainsRune(" \t\r\n\"'`=,;:()<>{}[]|&", c) }

// Redact returns text without the secrets.
func (r *Redactor) Redact(text string) string {
	for _, p := range r.patterns {
		text = strings.ReplaceAll(text, p, cut)
	}
	return text
}
