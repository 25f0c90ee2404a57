package jsonkeys_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/shared/jsonkeys"
)

func TestRepeated(t *testing.T) {
	type faults = []*jsonkeys.RepeatedError
	for text, want := range map[string]faults{
		`[{"a": 1, "b": 1}, {"a": 1}]`:                   nil,
		`{"a": {"a": [{"a": 1}]}, "b": "a", "c": ["b"]}`: nil,
		`{"a": 1, "A": 1}`:                               nil,
		`[{"a": 1,` + "\n\n" + `"a": 1}]`:                {{Path: "o[0].a", First: 1, Line: 3}},
		`[{}, {"a": 1, "b": {}, "a": {"c": 1, "c": 2}}]`: {{Path: "o[1].a", First: 1, Line: 1}, {Path: "o[1].a.c", First: 1, Line: 1}},
		`[{"a": [[], [{"b": 1, "b": 1}]]}]`:              {{Path: "o[0].a[1][0].b", First: 1, Line: 1}},
		`{"labels": {"x/y": "1", "x/y": "1"}}`:           {{Path: `o.labels["x/y"]`, First: 1, Line: 1}},
		`{"a": 1, "\u0061": 1, "a": null}`:               {{Path: "o.a", First: 1, Line: 1}, {Path: "o.a", First: 1, Line: 1}},
		`{"": 1, "": 1}`:                                 {{Path: `o[""]`, First: 1, Line: 1}},
		`{"a": "a", "b": {"a": "b"}, "a": "a"`:           {{Path: "o.a", First: 1, Line: 1}}, // cut off
		`nonsense`:                                       nil, ``: nil, `"a"`: nil, `[1, true, null, 2.5]`: nil,
	} {
		if diff := cmp.Diff(want, jsonkeys.Repeated([]byte(text), "o", false)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if got := jsonkeys.Repeated([]byte(`{"token": 1, "Token": 2}`), "", true); len(got) != 1 || got[0].Path != "Token" {
		t.Errorf("without case: %v", got)
	}
}

func TestCheckMark(t *testing.T) {
	for _, text := range []string{"\ufeff{}", "\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}"} {
		if err := jsonkeys.CheckMark([]byte(text)); !errors.Is(err, jsonkeys.ErrByteOrderMark) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := jsonkeys.CheckMark([]byte("{}")); err != nil {
		t.Error(err)
	}
}

// FuzzRepeated: what has no key twice once it was decoded and encoded again has
// none that is told of, and any other text comes to an end.
func FuzzRepeated(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":2}`, `[{"a":[{}]}]`, strings.Repeat("[", 100), `{"a":{"b":`, `{}{}`, `]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		jsonkeys.Repeated(text, "o", true)
		var value any
		if json.Unmarshal(text, &value) != nil {
			return
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := jsonkeys.Repeated(again, "o", false); len(got) > 0 {
			t.Errorf("%s: %v", again, got)
		}
	})
}
