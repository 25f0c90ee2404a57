package agent_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/agent"
)

// FuzzConfig: a configuration is taken only if it names an https endpoint, a CA,
// a machine and a token, and no refusal quotes the token.
func FuzzConfig(f *testing.F) {
	const secret = "Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LWNhbmE="
	ca, err := os.ReadFile("../cloudinit/testdata/ca.pem")
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(string(ca))
	if err != nil {
		f.Fatal(err)
	}
	whole := `{"endpoint":"https://p.test:9443","ca_pem":` + string(text) + `,"machine_id":"m","token":"` + secret + `"}`
	for _, s := range []string{
		whole, strings.Replace(whole, "https", "http", 1), strings.Replace(whole, `"m"`, `["`+secret+`"]`, 1), strings.Replace(whole, string(text), `"`+secret+`"`, 1),
		strings.Replace(whole, "https://p.test", "https://u:"+secret+"@p.test", 1), whole[:len(whole)-3], `{"token":{"x":"` + secret + `"}}`, "", "null", "[]", "{}", `"` + secret + `"`, "{" + secret,
		strings.Replace(whole, "{", `{"hook":"relative","hook_runner":"x",`, 1),
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "config.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := agent.LoadConfig(path)
		if err != nil {
			if bytes.Contains(body, []byte(secret)) && strings.Contains(err.Error(), secret) {
				t.Errorf("the token is quoted: %v", err)
			}
			return
		}
		if !strings.HasPrefix(strings.ToLower(c.Endpoint), "https://") || c.CAPEM == "" || c.MachineID == "" || c.Token == "" || !filepath.IsAbs(c.StateDir) || !filepath.IsAbs(c.RuntimeDir) {
			t.Errorf("accepted: %+v", c)
		}
	})
}
