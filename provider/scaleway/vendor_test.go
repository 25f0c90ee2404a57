package scaleway

import (
	"os"
	"path/filepath"
	"testing"

	"bigfleet-providers/provider"
)

// load reads a command line, and returns what of it is Scaleway's as well.
func load(args []string, vars map[string]string) (*provider.Config, *settings, error) {
	v, s := Vendor(), new(settings)
	v.Settings = func() provider.Settings { return s }
	cfg, err := provider.Load(v, args, func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	})
	return cfg, s, err
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKeyInClear: the secret key is in every call, so that an address without
// TLS is worth a warning unless it is on this host.
func TestKeyInClear(t *testing.T) {
	for address, want := range map[string]bool{
		"": false, "https://api.example": false, "http://127.0.0.1:8080": false, "http://[::1]:8080": false, "http://localhost:8080": false, "http://127.1.2.3": false,
		"http://api.example": true, "http://10.0.0.1:8080": true, "HTTP://api.example": true, "http://[2001:db8::1]": true, "http://localhost.example": true,
	} {
		if got := inClear(address); got != want {
			t.Errorf("inClear(%q) = %v", address, got)
		}
	}
}
