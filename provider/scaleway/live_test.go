package scaleway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/fakecloud"
)

// useFake serves a fake Scaleway and sets the environment to its account.
func useFake(t *testing.T) (*fakecloud.Cloud, *httptest.Server) {
	t.Helper()
	c := fakecloud.New(fakecloud.Options{Scale: 0.001})
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		srv.Close()
		c.Close()
	})
	useAccount(t, srv.URL)
	return c, srv
}

func useAccount(t *testing.T, url string) {
	t.Helper()
	for name, value := range map[string]string{
		"SCW_API_URL": url, "SCW_ACCESS_KEY": fakecloud.DefaultAccessKey, "SCW_SECRET_KEY": fakecloud.DefaultSecretKey,
		"SCW_DEFAULT_PROJECT_ID": fakecloud.DefaultProjectID, "BIGFLEET_BOOTSTRAP_SECRET": strings.Repeat("s", 32),
	} {
		t.Setenv(name, value)
	}
}

// deployment are the flags of a configuration without a fault.
func deployment(t *testing.T) []string {
	t.Helper()
	cert, key := selfSigned(t, "provider.invalid")
	return []string{
		"--image=ubuntu_noble", "--agent-install=image", "--bootstrap-endpoint=https://provider.invalid:9443",
		"--bootstrap-tls-cert=" + writeFile(t, cert), "--bootstrap-tls-key=" + writeFile(t, key),
	}
}

// selfSigned makes a certificate for a host name.
func selfSigned(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", keyDER)
}

func checkLiveOf(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = provider.Main(Vendor(), "test", append([]string{"check-config", "--live"}, args...), &stdout, &stderr)
	if out := stdout.String() + stderr.String(); strings.Contains(out, fakecloud.DefaultSecretKey) {
		t.Errorf("the secret key is printed:\n%s", out)
	}
	return code, stdout.String() + stderr.String()
}

func wantLines(t *testing.T, output string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !regexp.MustCompile("(?m)^" + want).MatchString(output) {
			t.Errorf("no line begins with %q:\n%s", want, output)
		}
	}
}

// TestLiveCheck asks an account where all is well.
func TestLiveCheck(t *testing.T) {
	c, _ := useFake(t)
	code, out := checkLiveOf(t, deployment(t)...)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantLines(t, out,
		`the configuration is usable`,
		`ok    channel certificate: agents can verify it for https://provider\.invalid:9443; it ends on \d{4}-`,
		`ok    user data: at most \d+ of 127998 bytes`,
		`ok    credentials: `, `ok    Instances: `, `ok    Block Storage: `,
		`ok    project `+fakecloud.DefaultProjectID,
		`\?     permission to create and delete: .*InstancesFullAccess, BlockStorageFullAccess on project`,
		`ok    zone fr-par-1: it sells \d+ types`,
		`ok    built-in mix: type DEV1-S`, `ok    built-in mix: image ubuntu_noble: it fits type DEV1-S`,
		`ok    built-in mix: type GP1-XS`,
		`\?     quota: `,
		`\d+ ok, \d+ not known, 0 to look at, 0 FAIL$`,
	)
	for _, call := range c.Calls() {
		if call.Method != http.MethodGet {
			t.Errorf("the check made a call that writes: %s %s", call.Method, call.Path)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestLiveCheckOfTheFakeBackend(t *testing.T) {
	dir := t.TempDir()
	code, out := checkLiveOf(t, "--use-fake-backend", "--state="+filepath.Join(dir, "state.db"))
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	wantLines(t, out, `ok    user data: `, `ok    credentials: `, `ok    built-in mix: image ubuntu_jammy`)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the check left %v beside the state (%v)", left, err)
	}
}

// Each fault of an account is a line that says what to do, and the exit code
// tells.
func TestLiveCheckFindsFaults(t *testing.T) {
	const nothing = "99999999-9999-4999-8999-999999999999"
	permanently := func(route string, reply *fakecloud.Reply) func(*testing.T, *fakecloud.Cloud) {
		return func(_ *testing.T, c *fakecloud.Cloud) {
			c.Inject(fakecloud.Fault{Route: route, Times: -1, Reply: reply})
		}
	}
	offer := func(fields string) string {
		return `[{"commercial_type": "PLAY2-NANO", "zone": "fr-par-1", "count": 2` + fields + `}]`
	}
	for name, tc := range map[string]struct {
		setup     func(*testing.T, *fakecloud.Cloud)
		offerings string
		args      []string
		code      int
		want      []string
	}{
		"unknown key": {setup: func(t *testing.T, _ *fakecloud.Cloud) { t.Setenv("SCW_SECRET_KEY", nothing) }, code: 1,
			want: []string{`FAIL  credentials: .*check SCW_ACCESS_KEY and SCW_SECRET_KEY`, `ok    zone fr-par-1`}},
		"may not list servers": {setup: permanently(fakecloud.RouteListServers, fakecloud.Forbidden("server", "list")), code: 1,
			want: []string{`ok    credentials: `, `FAIL  Instances: .*InstancesFullAccess`}},
		"may not list volumes": {setup: permanently(fakecloud.RouteListBlockVolumes, fakecloud.Forbidden("volume", "list")), code: 1,
			want: []string{`ok    Instances: `, `FAIL  Block Storage: .*grant BlockStorageFullAccess`}},
		"API is down": {setup: permanently("", fakecloud.Unavailable()), code: 1,
			want: []string{`FAIL  Instances: .*check --api-url`, `FAIL  zone fr-par-1`}},
		"project is not there": {setup: func(t *testing.T, _ *fakecloud.Cloud) { t.Setenv("SCW_DEFAULT_PROJECT_ID", nothing) }, code: 1,
			want: []string{`FAIL  project ` + nothing + `: .*SCW_DEFAULT_PROJECT_ID`}},
		"unknown type": {offerings: `[{"commercial_type": "PLAY2-NANNO", "zone": "fr-par-1", "count": 1}]`, code: 1,
			want: []string{`FAIL  offerings\[0\]: type PLAY2-NANNO: zone fr-par-1 does not sell it`}},
		"out of stock": {setup: func(_ *testing.T, c *fakecloud.Cloud) { c.SetStock("fr-par-1", "PLAY2-NANO", fakecloud.Shortage) }, code: 0,
			want: []string{`warn  offerings\[0\]: type PLAY2-NANO: it is out of stock`}},
		"about to be retired": {offerings: `[{"commercial_type": "START1-S", "zone": "fr-par-1", "count": 1}]`, code: 0,
			want: []string{`warn  offerings\[0\]: type START1-S: Scaleway is about to retire it`}},
		"image and volume": {offerings: offer(`, "image": "ubuntu_noblesse", "root_volume": {"type": "local", "size_gb": 20}`), code: 1,
			want: []string{`FAIL  offerings\[0\]: image ubuntu_noblesse: .*no such label.*root_volume\.type: PLAY2-NANO has no local disk`}},
		"named things": {offerings: offer(`, "security_group_id": "` + nothing + `", "placement_group_id": "` + nothing + `", "private_network_ids": ["` + nothing + `"]`), code: 1,
			want: []string{`FAIL  security_group_id ` + nothing, `FAIL  placement_group_id ` + nothing, `FAIL  private_network_ids ` + nothing, `\?     permission .*PrivateNetworksFullAccess`}},
		"reaches nothing": {offerings: offer(`, "public_ip": "none"`), code: 0,
			want: []string{`warn  reach: offerings\[0\] \(PLAY2-NANO\): no public address and no private network`}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := useFake(t)
			if tc.setup != nil {
				tc.setup(t, c)
			}
			if tc.offerings == "" {
				tc.offerings = offer("")
			}
			code, out := checkLiveOf(t, append(append(deployment(t), "--offerings="+writeFile(t, tc.offerings)), tc.args...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			wantLines(t, out, tc.want...)
		})
	}
}

// What the options name is found, and what is in another project is not taken
// for usable.
func TestLiveCheckFindsQuota(t *testing.T) {
	_, fake := useFake(t)
	var asked []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /iam/v1alpha1/quota", func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()["quotum_names"]
		w.Header().Set("Content-Type", "application/json")
		limit := func(name string, n int) map[string]any {
			return map[string]any{"name": name, "limits": []any{map[string]any{"global": true, "limit": n}}}
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"total_count": 2, "quota": []any{limit("cp_servers_type_DEV1_S", 20), limit("cp_servers_type_GP1_XS", 4)}}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fake.Config.Handler.ServeHTTP(w, r)
	})
	front := httptest.NewServer(mux)
	defer front.Close()
	useAccount(t, front.URL)
	code, out := checkLiveOf(t, append(deployment(t), "--seed-count=16")...)
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	wantLines(t, out,
		`ok    quota cp_servers_type_DEV1_S: 20 for the 8 that are offered`,
		`warn  quota cp_servers_type_GP1_XS: 4, but 8 are offered`,
	)
	if fmt.Sprint(asked) != "[cp_servers_type_DEV1_S cp_servers_type_GP1_XS]" {
		t.Errorf("asked for the quota of %v", asked)
	}
}

func TestServeRefusesLive(t *testing.T) {
	var out bytes.Buffer
	if code := provider.Main(Vendor(), "test", []string{"--live", "--use-fake-backend"}, io.Discard, &out); code != 2 || !strings.Contains(out.String(), "--live: only check-config has it") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// A provider whose key is refused does not start, and says so.
func TestStartWithARefusedKey(t *testing.T) {
	useFake(t)
	t.Setenv("SCW_SECRET_KEY", "99999999-9999-4999-8999-999999999999")
	var out bytes.Buffer
	code := provider.Main(Vendor(), "test", append(deployment(t), "--addr=127.0.0.1:0", "--bootstrap-addr=127.0.0.1:0", "--metrics-addr="), io.Discard, &out)
	if code != 1 || !strings.Contains(out.String(), "the cloud refuses the credentials") || !strings.Contains(out.String(), "check SCW_ACCESS_KEY") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
