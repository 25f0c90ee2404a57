package hook

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

const (
	minLine = 8  // a shorter line of a blob gives nothing away
	minWord = 16 // as does a shorter word: paths and options stay readable
	column  = 76 // where base64(1) breaks its lines
	cut     = "[redacted]"

	headBytes  = 8 // of a pattern, by which it is found
	filterBits = 20
)

// Redactor cuts secrets out of what a hook printed. What it takes grows with the
// text and not with the secrets: a hook that prints a gigabyte waits for it.
type Redactor struct {
	short []string            // patterns shorter than headBytes
	heads map[uint64][]string // the others by their first bytes, the longest first
	// filter has a bit for the hash of each head: most places of a text are
	// passed by without a look into heads.
	filter []uint64
}

// NewRedactor returns a redactor for the token and the blob: it cuts them whole,
// each line and each long word of the blob, since a hook that fails tends to
// print the line it failed on, and all of that in base64, wherever in a longer
// text, and in hexadecimal digits.
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
	encoded := func(s string) {
		if s = strings.TrimSpace(s); len(s) < minWord {
			return
		}
		digits := hex.EncodeToString([]byte(s))
		add(digits, minWord)
		add(strings.ToUpper(digits), minWord)
		// Within a longer text it begins at any of the three bytes of a group;
		// the groups that hold something else too are not known.
		for skip := range 3 {
			whole := s[skip : skip+(len(s)-skip)/3*3]
			add(base64.StdEncoding.EncodeToString([]byte(whole)), minWord)
			add(base64.URLEncoding.EncodeToString([]byte(whole)), minWord)
		}
	}
	encoded(token)
	for line := range strings.Lines(string(blob)) {
		add(line, minLine)
		encoded(line)
		for _, word := range strings.FieldsFunc(line, isBreak) {
			add(word, minWord)
			encoded(word)
		}
	}
	return newRedactor(set)
}

func isBreak(c rune) bool { return strings.ContainsRune(" \t\r\n\"'`=,;:()<>{}[]|&", c) }

func newRedactor(patterns map[string]struct{}) *Redactor {
	r := &Redactor{heads: make(map[uint64][]string, len(patterns)), filter: make([]uint64, 1<<filterBits/64)}
	for p := range patterns {
		if len(p) < headBytes {
			r.short = append(r.short, p)
			continue
		}
		h := binary.LittleEndian.Uint64([]byte(p))
		r.heads[h] = append(r.heads[h], p)
		bit := hash(h)
		r.filter[bit/64] |= 1 << (bit % 64)
	}
	for _, same := range r.heads {
		slices.SortFunc(same, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	}
	return r
}

// hash spreads a head over filterBits bits, by multiplication (Knuth, The Art of
// Computer Programming, 6.4).
func hash(head uint64) uint64 { return head * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

// Redact returns text without the secrets.
func (r *Redactor) Redact(text string) string {
	var out strings.Builder
	kept := 0          // text before it is in out
	from, to := -1, -1 // a secret that was found and may go on in another
	flush := func() {
		if to > kept {
			out.WriteString(text[kept:from])
			out.WriteString(cut)
			kept = to
		}
	}
	for i := range len(text) {
		n := r.match(text[i:])
		switch {
		case n == 0:
		case i > to:
			flush()
			from, to = i, i+n
		default:
			to = max(to, i+n)
		}
	}
	flush()
	if kept == 0 {
		return text
	}
	out.WriteString(text[kept:])
	return out.String()
}

// match returns the length of the longest pattern that text begins with, 0 for
// none.
func (r *Redactor) match(text string) int {
	longest := 0
	for _, p := range r.short {
		if strings.HasPrefix(text, p) {
			longest = max(longest, len(p))
		}
	}
	if len(text) < headBytes {
		return longest
	}
	head := binary.LittleEndian.Uint64([]byte(text[:headBytes]))
	if bit := hash(head); r.filter[bit/64]&(1<<(bit%64)) == 0 {
		return longest
	}
	for _, p := range r.heads[head] {
		if strings.HasPrefix(text, p) {
			return len(p)
		}
	}
	return longest
}
