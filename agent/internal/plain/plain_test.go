package plain

import "testing"

func TestLineAndText(t *testing.T) {
	for _, c := range []struct{ in, line, text string }{
		{"", "", ""},
		{"as it was: ü 漢", "as it was: ü 漢", "as it was: ü 漢"},
		{"two\nlines", "two lines", "two\nlines"},
		{"a\x1b]0;title\x07b\x00\x7f\r", "a?]0;title?b???", "a?]0;title?b???"},
		{"\u009b2J\u202etxt\u2028x", "?2J?txt?x", "?2J?txt?x"},
		{"not \xff UTF-8", "not \uFFFD UTF-8", "not \uFFFD UTF-8"},
	} {
		if got := Line(c.in); got != c.line {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.line)
		}
		if got := Text(c.in); got != c.text {
			t.Errorf("Text(%q) = %q, want %q", c.in, got, c.text)
		}
	}
}
