package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
)

func writeConfig(t *testing.T, mode os.FileMode, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

func TestLoadConfig(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	fields := map[string]string{
		"endpoint": "https://provider.test:9443/zone-1", "ca_pem": server.CAPEM, "machine_id": "m-1", "token": server.Token, "from_the_future": "x",
	}
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	got, err := agent.LoadConfig(writeConfig(t, 0o600, string(body)))
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Config{
		Endpoint: fields["endpoint"], CAPEM: server.CAPEM, MachineID: "m-1", Token: agent.Token(server.Token),
		StateDir: agent.DefaultStateDir, RuntimeDir: agent.DefaultRuntimeDir,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprintf("%v %+v %#v", got, got, got); strings.Contains(text, server.Token) {
		t.Error("the configuration prints its token")
	}
}

func TestConfigFaults(t *testing.T) {
	const token = "secret-token-that-must-not-appear"
	server := ct.Start(t, ct.Options{})
	ca, err := json.Marshal(server.CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf(`"ca_pem":%s,"machine_id":"m-1","token":%q`, ca, server.Token)
	tests := []struct {
		name, content string
		mode          os.FileMode
		want          []string
	}{
		{"everything at once", `{"endpoint":"http://x","token":"` + token + `","hook":"hook","state_dir":"state","runtime_dir":"run"}`, 0o644,
			[]string{"chmod 0600", "endpoint:", "ca_pem: missing", "machine_id: missing", "token: not a token", "hook:", "state_dir:", "runtime_dir:"}},
		{"no such runner", `{"endpoint":"https://x","hook_runner":"docker",` + good + `}`, 0o600, []string{"hook_runner: \"docker\""}},
		{"empty CA", `{"endpoint":"https://x","ca_pem":"","machine_id":"m","token":"` + server.Token + `"}`, 0o600, []string{"ca_pem: missing"}},
		{"damaged CA", `{"endpoint":"https://x","ca_pem":` + strings.Replace(string(ca), "-", "", 1) + `,"machine_id":"m","token":"` + server.Token + `"}`, 0o600, []string{"ca_pem: block 1 (line 1)"}},
		{"key twice", `{"endpoint":"https://x","endpoint":"https://y",` + good + `,"TOKEN":"x"}`, 0o600, []string{"endpoint: there twice", "TOKEN: there twice"}},
		{"byte order mark", "\ufeff{}", 0o600, []string{"byte order mark"}},
		{"blank CA", `{"endpoint":"https://x","ca_pem":" \n","machine_id":"m","token":"` + server.Token + `"}`, 0o600, []string{"ca_pem: holds no PEM certificate"}},
		{"plain http", `{"endpoint":"http://x",` + good + `}`, 0o600, []string{"endpoint: want https://host"}},
		{"all missing", `{}`, 0o600, []string{"endpoint: missing", "ca_pem: missing", "machine_id: missing", "token: missing"}},
		{"empty file", ``, 0o600, []string{"it is empty"}},
		{"blank file", " \n", 0o600, []string{"it is empty"}},
		{"an array", `[]`, 0o600, []string{"not a JSON object"}},
		{"cut short", `{"token":"` + token, 0o600, []string{"not JSON"}},
		{"token is no text", `{"token":["` + token + `"]}`, 0o600, []string{"token: want a string"}},
		{"group may read", `{"endpoint":"https://x",` + good + `}`, 0o640, []string{"chmod 0600"}},
		{"no certificate", `{"endpoint":"https://x","ca_pem":"x","machine_id":"m","token":"` + server.Token + `"}`, 0o600, []string{"ca_pem: holds no PEM certificate"}},
		{"password in the endpoint", `{"endpoint":"https://u:` + token + `@x",` + good + `}`, 0o600, []string{"endpoint: has a user"}},
		{"endpoint is no URL", `{"endpoint":"https://x:` + token + `",` + good + `}`, 0o600, []string{"endpoint: not a URL"}},
		{"endpoint with port 0", `{"endpoint":"https://x:0",` + good + `}`, 0o600, []string{`endpoint: port "0", want 1 to 65535`}},
		{"endpoint with a port too large", `{"endpoint":"https://x:99999",` + good + `}`, 0o600, []string{`endpoint: port "99999", want 1 to 65535`}},
		{"machine id too long", fmt.Sprintf(`{"endpoint":"https://x","ca_pem":%s,"machine_id":%q,"token":%q}`, ca, strings.Repeat("m", 257), server.Token), 0o600,
			[]string{"machine_id: 257 bytes"}},
		{"huge", strings.Repeat(" ", 1<<20+1), 0o600, []string{"over 1048576 bytes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := agent.LoadConfig(writeConfig(t, tt.mode, tt.content))
			if err == nil {
				t.Fatal("accepted")
			}
			if n := len(strings.Split(err.Error(), "\n")); n != len(tt.want) {
				t.Errorf("%d faults, want %d", n, len(tt.want))
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing in:\n%v", w, err)
				}
			}
			if strings.Contains(err.Error(), token) {
				t.Errorf("the error holds the token:\n%v", err)
			}
		})
	}
	if _, err := agent.LoadConfig("/no/such/file"); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestRunRefusesBadConfig(t *testing.T) {
	if err := agent.Run(t.Context(), agent.Config{}, agent.Options{}); err == nil || !strings.Contains(err.Error(), "machine_id: missing") {
		t.Errorf("Run = %v", err)
	}
}
