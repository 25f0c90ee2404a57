// Package plain makes words of others fit for a terminal and for the service
// manager. An error may quote who is at the other end before it is known who that
// is: the names in a certificate that is refused, a proxy's answer. Such words must
// not move a terminal's cursor, or add a line to what systemd is told.
package plain

import (
	"strings"
	"unicode"
)

// Line returns text as one line without control characters.
func Line(text string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return ' '
		}
		return visible(c)
	}, text)
}

// Text is Line for text of several lines.
func Text(text string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' {
			return c
		}
		return visible(c)
	}, text)
}

// visible replaces what acts on a terminal instead of being shown. The marks of
// direction are no control characters, and show a text in another order.
func visible(c rune) rune {
	if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029' {
		return '?'
	}
	return c
}
