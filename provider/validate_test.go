package provider

import (
	"strings"
	"testing"
)

func TestPreviousSecretIsJudged(t *testing.T) {
	long := strings.Repeat("s", 32)
	for name, c := range map[string]struct{ secret, previous, want string }{
		"none":     {long, "", ""},
		"fine":     {long, long + "x", ""},
		"short":    {long, "canary", "--bootstrap-secret-previous: the bootstrap secret has 6 bytes"},
		"the same": {long, long, "the same as --bootstrap-secret"},
		"alone":    {"", long, "set without --bootstrap-secret"},
	} {
		err := (&Config{Bootstrap: BootstrapConfig{Secret: c.secret, SecretPrevious: c.previous}}).validatePreviousSecret()
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err != nil && (strings.Contains(err.Error(), long) || strings.Contains(err.Error(), "canary")):
			t.Errorf("%s: the secret is in %q", name, err)
		}
	}
}
