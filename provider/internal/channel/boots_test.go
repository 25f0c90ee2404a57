package channel

import (
	"testing"
	"time"
)

func TestBoots(t *testing.T) {
	type step struct {
		boot   string
		after  time.Duration
		parked bool
		want   judgement
	}
	const s = time.Second
	tests := map[string][]step{
		"one host":      {{"a", 0, false, admitted}, {"a", s, true, admitted}, {"a", time.Hour, false, admitted}},
		"reboot":        {{"a", 0, false, admitted}, {"b", s, false, admitted}, {"b", s, true, admitted}},
		"no boot id":    {{"", 0, false, admitted}, {"a", s, false, admitted}, {"", s, true, admitted}},
		"too long ago":  {{"a", 0, false, admitted}, {"b", s, false, admitted}, {"a", formerWindow, false, admitted}},
		"many reboots":  {{"a", 0, false, admitted}, {"b", 1, false, admitted}, {"c", 1, false, admitted}, {"d", 1, false, admitted}, {"e", 1, false, admitted}, {"f", 1, false, admitted}, {"a", 1, false, admitted}},
		"the first one": {{"a", 0, false, admitted}, {"b", s, false, admitted}, {"a", s, false, admitted}, {"b", s, false, foreign}, {"a", s, false, admitted}, {"b", time.Hour, false, foreign}},
		"three hosts": {
			{"a", 0, false, admitted}, {"b", s, false, admitted}, {"c", s, false, admitted}, {"a", s, false, admitted},
			{"b", s, false, foreign}, {"c", s, false, foreign}, {"a", s, false, admitted},
		},
		"it reboots after that": {
			{"a", 0, false, admitted}, {"b", s, false, admitted}, {"a", s, false, admitted}, {"c", s, false, admitted}, {"b", s, false, foreign}, {"c", s, false, admitted},
		},
		"a clone beside a parked poll": {
			{"a", 0, false, admitted}, {"b", s, true, unproven}, {"a", s, false, admitted}, {"b", 10 * s, true, foreign}, {"a", s, false, admitted},
		},
		"a reset whose dead poll is parked": {
			{"a", 0, false, admitted}, {"b", s, true, unproven}, {"b", proofTime - s, false, unproven}, {"b", s, false, admitted}, {"b", s, true, admitted},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var b boots
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				if got := b.judge(s.boot, now, s.parked); got != s.want {
					t.Errorf("step %d (%s): %v, want %v", i, s.boot, got, s.want)
				}
			}
		})
	}
}
