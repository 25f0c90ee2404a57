package blob

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// words splits a command line as a shell does that expands nothing. What a shell
// would act on, outside of quotes, is an error: no shell runs the line.
func words(line string) ([]string, error) {
	var all []string
	var word strings.Builder
	inWord := false
	quote := rune(0)
	text := []rune(line)
	for i := 0; i < len(text); i++ {
		r := text[i]
		switch {
		case quote == '\'' && r != '\'', quote == '"' && r != '"' && r != '\\' && r != '$' && r != '`':
			word.WriteRune(r)
		case quote != 0 && r == quote:
			quote = 0
		case r == '\\' && i+1 == len(text):
			return nil, errors.New("a backslash at the end, with nothing behind it")
		case r == '\\':
			i++
			if quote == '"' && !strings.ContainsRune("\"\\$`", text[i]) {
				word.WriteRune(r)
			}
			word.WriteRune(text[i])
			inWord = true
		case strings.ContainsRune("$`;&|<>(){}*?!", r):
			return nil, fmt.Errorf("the character %q, which a shell would act on; no shell reads the line, quote it in '…' if it is meant", r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				all = append(all, word.String())
			}
			word.Reset()
			inWord = false
		case r == '#' && !inWord:
			return all, nil // a comment
		case r > unicode.MaxASCII || unicode.IsControl(r):
			return nil, fmt.Errorf("the character %U, as word processors and web pages put it in the place of a quote, a hyphen or a space", r)
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c that is not closed", quote)
	}
	if inWord {
		all = append(all, word.String())
	}
	return all, nil
}
