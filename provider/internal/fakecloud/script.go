package fakecloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// script reads a JSON object field by field, so that one answer names every
// mistake in it: a wrong type, a value out of range, a field that nobody knows.
type script struct {
	path   string // in front of each field's name
	fields map[string]json.RawMessage
	faults *[]error
}

func readScript(body []byte) (*script, error) {
	s := &script{faults: new([]error)}
	if err := json.Unmarshal(body, &s.fields); err != nil {
		return nil, fmt.Errorf("body: want a JSON object: %w", err)
	}
	return s, nil
}

func (s *script) refuse(name, format string, args ...any) {
	*s.faults = append(*s.faults, fmt.Errorf("%s%s: %w", s.path, name, fmt.Errorf(format, args...)))
}

// has says whether the field is given, null or not.
func (s *script) has(name string) bool {
	_, given := s.fields[name]
	return given
}

// read takes the field and reports whether into has it now; one that is absent
// leaves into alone.
func (s *script) read(name string, into any) bool {
	raw, given := s.fields[name]
	delete(s.fields, name)
	if !given {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		s.refuse(name, "%w", err)
		return false
	}
	return true
}

func (s *script) text(name string) (v string) {
	s.read(name, &v)
	return v
}

// oneOf takes a field that holds one of a few words; "" when it is absent.
func (s *script) oneOf(name string, words ...string) (v string) {
	if s.read(name, &v) && !slices.Contains(words, v) {
		s.refuse(name, "%q: want one of %q", v, words)
	}
	return v
}

// count takes a whole number of at least least; 0 when it is absent.
func (s *script) count(name string, least int) (v int) {
	if s.read(name, &v) && v < least {
		s.refuse(name, "%d: must be at least %d", v, least)
	}
	return v
}

// duration takes a field like "1m30s"; one that is absent leaves into alone.
func (s *script) duration(name string, into *time.Duration) {
	var v string
	if !s.read(name, &v) {
		return
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		s.refuse(name, "%q: want a duration of at least 0, like 1m30s", v)
		return
	}
	*into = d
}

// object takes a field that is an object; nil when it is absent.
func (s *script) object(name string) *script {
	var fields map[string]json.RawMessage
	s.read(name, &fields)
	if fields == nil {
		return nil
	}
	return &script{path: s.path + name + ".", fields: fields, faults: s.faults}
}

// list takes a field that is a list of objects.
func (s *script) list(name string) []*script {
	var list []map[string]json.RawMessage
	s.read(name, &list)
	var out []*script
	for i, fields := range list {
		out = append(out, &script{path: fmt.Sprintf("%s%s.%d.", s.path, name, i), fields: fields, faults: s.faults})
	}
	return out
}

// end names the fields that nobody took.
func (s *script) end() {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		s.refuse(name, "unknown field")
	}
}

// err is every mistake found so far.
func (s *script) err() error { return errors.Join(*s.faults...) }
