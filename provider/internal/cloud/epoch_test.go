package cloud

import "testing"

func TestOwnerEpoch(t *testing.T) {
	for text, want := range map[string]OwnerEpoch{
		"7-abc":                 {7, "abc"},
		"9223372036854775807-z": {9223372036854775807, "z"},
		"7-a-b":                 {7, "a-b"},
		// Edited by hand: none may depose a provider.
		"": {}, "7": {}, "7-": {}, "-abc": {}, "x-abc": {}, "0-abc": {}, "-1-abc": {}, "07-abc": {}, "+7-abc": {}, "9223372036854775808-z": {},
	} {
		got := ParseOwnerEpoch(text)
		if got != want {
			t.Errorf("ParseOwnerEpoch(%q) = %+v, want %+v", text, got, want)
		}
		if want != (OwnerEpoch{}) && got.String() != text {
			t.Errorf("%+v is rendered %q, want %q", got, got, text)
		}
	}
	ascending := []OwnerEpoch{{}, {1, "a"}, {1, "b"}, {2, "a"}, {10, "a"}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := a.After(b); got != (i > j) {
				t.Errorf("%s after %s: %t", a, b, got)
			}
		}
	}
}
