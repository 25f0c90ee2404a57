package fakecloud

import (
	"bytes"
	"encoding/json"
	"time"
)

// stamp is a time as Instances v1 writes it: microseconds and +00:00.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(s).UTC().Format(`"2006-01-02T15:04:05.000000-07:00"`)), nil
}

// zulu is a time as the other products write it.
func zulu(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// encode writes v as the product does: Instances v1 with a space after each
// comma and colon, the others without.
func encode(v any, spaced bool) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if spaced {
		out = space(out)
	}
	return out, nil
}

func space(in []byte) []byte {
	out := make([]byte, 0, len(in)+len(in)/8)
	inString, escaped := false, false
	for _, b := range in {
		out = append(out, b)
		switch {
		case escaped:
			escaped = false
		case inString && b == '\\':
			escaped = true
		case b == '"':
			inString = !inString
		case !inString && (b == ',' || b == ':'):
			out = append(out, ' ')
		}
	}
	return out
}

// nullable is a string field for which null and absence differ.
type nullable struct {
	given bool
	value string // "" for null
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *nullable) UnmarshalJSON(b []byte) error {
	n.given = true
	return json.Unmarshal(b, &n.value)
}
