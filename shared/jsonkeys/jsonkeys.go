// Package jsonkeys finds what encoding/json takes in silence in a file that a
// person wrote: a key that an object has twice, of which the last one counts.
package jsonkeys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	byteOrderMark = []byte("\ufeff")
	utf16Marks    = [][]byte{{0xFE, 0xFF}, {0xFF, 0xFE}}
)

// ErrByteOrderMark says that a text begins with a byte order mark, which is no
// JSON.
var ErrByteOrderMark = errors.New("begins with a byte order mark; save the file as UTF-8 without one")

// CheckMark refuses a byte order mark by its name.
func CheckMark(data []byte) error {
	for _, mark := range append(utf16Marks, byteOrderMark) {
		if bytes.HasPrefix(data, mark) {
			return ErrByteOrderMark
		}
	}
	return nil
}

// RepeatedError says that an object has a key twice.
type RepeatedError struct {
	Path        string // such as offerings[0].labels["a b"]
	First, Line int    // where the two are
}

func (e *RepeatedError) Error() string {
	return fmt.Sprintf("%s: there twice, in line %d and line %d; leave one", e.Path, e.First, e.Line)
}

// object is one that is being read, or an array.
type object struct {
	path   string
	array  bool
	index  int
	isKey  bool           // what comes next, in an object
	seen   map[string]int // keys, and the line of each
	member string         // the path of the value that comes next
}

// plain is a key that a path shows without quotes.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Repeated returns every key that is there twice. root is what paths begin with.
// fold compares keys without their case, as encoding/json does for structs. Of a
// text that is no JSON it returns what it finds before the place.
func Repeated(data []byte, root string, fold bool) []*RepeatedError {
	var faults []*RepeatedError
	var open []*object
	at, line := 0, 1
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return faults
		}
		var in *object
		if len(open) > 0 {
			in = open[len(open)-1]
		}
		if key, ok := token.(string); ok && in != nil && in.isKey {
			end := int(d.InputOffset())
			line, at = line+bytes.Count(data[at:end], []byte("\n")), end
			in.member = member(in.path, key)
			if fold {
				key = strings.ToLower(key)
			}
			if first, there := in.seen[key]; there {
				faults = append(faults, &RepeatedError{in.member, first, line})
			} else {
				in.seen[key] = line
			}
			in.isKey = false
			continue
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		path := root
		if in != nil {
			path = in.next()
		}
		switch token {
		case json.Delim('{'):
			open = append(open, &object{path: path, isKey: true, seen: map[string]int{}})
		case json.Delim('['):
			open = append(open, &object{path: path, array: true})
		}
	}
}

// next is the path of the value that begins.
func (o *object) next() string {
	if o.array {
		o.index++
		return fmt.Sprintf("%s[%d]", o.path, o.index-1)
	}
	o.isKey = true
	return o.member
}

func member(path, key string) string {
	switch {
	case !plain.MatchString(key):
		return fmt.Sprintf("%s[%.100q]", path, key)
	case path == "":
		return key
	default:
		return fmt.Sprintf("%s.%.100s", path, key)
	}
}
