package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// channelToken is the token of a machine in the life that a Create began, by the
// recipe of the documentation, not by the code under test.
func channelToken(secret, machineID, life string) string {
	return plainToken(secret, machineID+"\n"+life)
}

// plainToken is the one that is the same in all lives of a machine.
func plainToken(secret, machineID string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(machineID))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// host plays the agent of a machine.
type host struct {
	t       *testing.T
	client  *http.Client
	channel string // https://host:port
	id      string
	token   string
	stated  string // as the host's id; "" for none
}

func (h host) do(method, path, query string, body []byte) (int, http.Header, []byte) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.channel+path+"?machine_id="+h.id+query, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	if h.stated != "" {
		req.Header.Set("Bigfleet-Agent-Host", h.stated)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, content
}

// poll asks for a command; wait is in seconds, 0 for an answer at once.
func (h host) poll(wait int) (int, map[string]any) {
	h.t.Helper()
	query := ""
	if wait > 0 {
		query = fmt.Sprintf("&wait=%d", wait)
	}
	code, header, body := h.do(http.MethodGet, "/v1/command", query, nil)
	if header.Get("Cache-Control") != "no-store" || header.Get("Date") == "" {
		h.t.Errorf("the answer's headers are %v", header)
	}
	var command map[string]any
	if code == http.StatusOK {
		if err := json.Unmarshal(body, &command); err != nil {
			h.t.Fatal(err)
		}
	}
	return code, command
}

func (h host) ack(command string) int {
	h.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	code, _, _ := h.do(http.MethodPost, "/v1/ack", "", fmt.Appendf(nil, `{"command_id":%q,"ok":true,"started":%q,"finished":%q}`, command, now, now))
	return code
}

// trusting is an HTTP client that trusts the authority, and asks for no newer
// TLS than it is allowed to.
func (a *authority) trusting(newest uint16) *http.Client {
	a.t.Helper()
	conf := a.client()
	conf.MaxVersion = newest
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 40 * time.Second}
}

// TestRealBackend runs a provider as an operator would, with an account and
// certificates, against the fake cloud as a program of its own, and plays the
// agent itself.
func TestRealBackend(t *testing.T) {
	t.Parallel()
	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001")
	api := cloud.line(`SCW_API_URL=(\S+)`)[1]
	secretKey := cloud.line(`SCW_SECRET_KEY=(\S+)`)[1]
	const secret = "canary-bootstrap-secret-0123456789abcdef"
	env := environment(
		"SCW_API_URL="+api, "SCW_ACCESS_KEY="+cloud.line(`SCW_ACCESS_KEY=(\S+)`)[1], "SCW_SECRET_KEY="+secretKey,
		"SCW_DEFAULT_PROJECT_ID="+cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1], "BIGFLEET_BOOTSTRAP_SECRET="+secret,
	)
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair("channel", nil)
	args := []string{
		"--provider=certify", "--seed-count=2", "--state=" + filepath.Join(t.TempDir(), "state.db"), "--log-level=debug",
		"--bootstrap-addr=127.0.0.1:0", "--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key,
		"--bootstrap-ca=" + ca.pem, "--agent-install=image",
	}
	p := startProvider(t, env, nil, args...)
	p.line(`msg=starting .*fake=false`)
	ids := p.machines(2)
	dial := func(id, token string) host {
		addr := p.line(`bootstrap channel.*listen=(\S+)`)[1]
		return host{t: t, client: ca.trusting(0), channel: "https://" + strings.Replace(addr, "127.0.0.1", "localhost", 1), id: id, token: token}
	}
	create, beside := p.must("Create", ids[0], token{"s", 1, 1}, unspecified), p.must("Create", ids[1], token{}, unspecified)
	agent := dial(ids[0], channelToken(secret, ids[0], create))
	neighbour := dial(ids[1], channelToken(secret, ids[1], beside))
	// The first machine's, by the beginning of its name: the id and a hash.
	var server string
	await(t, "both servers booted", func() bool {
		ran := regexp.MustCompile(`level=INFO msg="server state" id=(\S+) .*state=running`).FindAllStringSubmatch(cloud.text(), -1)
		for _, m := range ran {
			if _, shown := fetch(t, api+"/instance/v1/zones/fr-par-1/servers/"+m[1], secretKey); strings.Contains(shown, "bigfleet-machine="+ids[0]+`"`) {
				server = m[1]
			}
		}
		return len(ran) == 2 && server != ""
	})

	t.Run("authorisation comes first and says nothing", func(t *testing.T) {
		var answers []string
		for _, c := range []struct{ id, token string }{
			{ids[0], ""}, {ids[0], "wrong"}, {ids[0], neighbour.token}, {ids[0], channelToken("another secret of enough bytes to do", ids[0], create)},
			{ids[0], channelToken(secret, ids[0], beside)}, {ids[0], channelToken(secret, ids[0], "")},
			{"nobody", channelToken(secret, "nobody", create)}, {"", channelToken(secret, "", create)},
		} {
			h := dial(c.id, c.token)
			h.t = t
			for _, path := range []string{"/v1/command", "/v1/ack", "/v1/packages/x", "/else"} {
				code, _, body := h.do(http.MethodGet, path, "", nil)
				answers = append(answers, fmt.Sprint(code, " ", string(body)))
			}
		}
		for _, a := range answers {
			if a != answers[0] || !strings.HasPrefix(a, "401 ") {
				t.Errorf("an answer is %q, another %q", a, answers[0])
			}
		}
	})
	t.Run("TLS 1.3 only", func(t *testing.T) {
		for name, client := range map[string]*http.Client{"TLS 1.2": ca.trusting(tls.VersionTLS12), "an agent that pins another CA": other.trusting(0)} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, agent.channel+"/v1/command", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
				t.Errorf("%s gets an answer", name)
			}
		}
	})
	userData := api + "/instance/v1/zones/fr-par-1/servers/" + server + "/user_data/cloud-init"
	t.Run("user data holds the machine's token and no other secret", func(t *testing.T) {
		code, data := fetch(t, userData, secretKey)
		hidden := canaries{"bootstrap secret": secret, "secret key": secretKey, "neighbour's token": neighbour.token}
		hidden.in(t, "the user data", []byte(data))
		if config := regexp.MustCompile(`"token"\s*:\s*"([^"]+)"`).FindStringSubmatch(data); len(config) < 2 || config[1] != agent.token {
			t.Errorf("the token is not the one that the documentation says: %t", config != nil)
		}
		if code != http.StatusOK || !strings.HasPrefix(data, "#cloud-config") && !strings.HasPrefix(data, "Content-Type: multipart/") {
			t.Errorf("%d, it begins with %.40q", code, data)
		}
	})
	if code, _ := neighbour.poll(0); code != http.StatusNoContent {
		t.Errorf("nothing is pending: %d", code)
	}
	if m := p.get(ids[0]); m.GetState() != creating || m.GetHost() != nil {
		t.Errorf("before the host was heard from: %v", m)
	}
	// Its agent calls for the first time once it has booted, and again.
	var m *pb.Machine
	await(t, "IDLE", func() bool {
		agent.poll(0)
		time.Sleep(250 * time.Millisecond)
		m = p.get(ids[0])
		return m.GetState() == idle
	})
	p.repeats("Create", ids[0], create)
	if m.GetHost().GetProvider() != "certify" || m.GetHost().GetRef() != "fr-par-1/"+server {
		t.Errorf("host %v is not the cloud's server %s", m.GetHost(), server)
	}
	if code, data := fetch(t, userData, secretKey); code != http.StatusNotFound {
		t.Errorf("after the first contact the token is still in the user data: %d, %d bytes", code, len(data))
	}

	blob := []byte("canary-blob\x00\xff\r\nverbatim")
	type polled struct {
		code    int
		command map[string]any
		at      time.Time
	}
	parked := make(chan polled, 1)
	go func() {
		code, command := agent.poll(30)
		parked <- polled{code, command, time.Now()}
	}()
	await(t, "the parked poll", func() bool { return p.counter(t, "bigfleet_scaleway_channel_parked_polls") == 1 })
	began := time.Now()
	if err := p.send(&pb.ConfigureRequest{MachineId: ids[0], ClusterId: "c", BootstrapBlob: blob}); err != nil {
		t.Fatal(err)
	}
	got := <-parked
	command := fmt.Sprint(got.command["command_id"])
	if got.code != http.StatusOK || got.command["kind"] != "configure" || got.command["machine_id"] != ids[0] || got.command["cluster_id"] != "c" ||
		got.command["blob"] != base64.StdEncoding.EncodeToString(blob) {
		t.Fatalf("the parked poll got %d %v", got.code, got.command)
	}
	// The node must carry the id by which Scaleway's cloud controller manager finds
	// its server; with another it takes the node for gone.
	if want := "scaleway://instance/fr-par-1/" + server; got.command["provider_id"] != want {
		t.Errorf("provider id %v, want %s", got.command["provider_id"], want)
	}
	if took := got.at.Sub(began); took > 3*time.Second {
		t.Errorf("the parked poll was woken after %s", took)
	}
	p.repeats("Configure", ids[0], command) // the command's id is the operation's
	if code, c := neighbour.poll(0); code != http.StatusNoContent {
		t.Errorf("the neighbour is given %d %v", code, c)
	}
	if code := neighbour.ack(command); code != http.StatusConflict {
		t.Errorf("the neighbour's report on it: %d, want 409", code)
	}
	if m := p.get(ids[0]); m.GetState() != configuring {
		t.Errorf("before the report: %s", m.GetState())
	}
	for _, want := range []int{http.StatusOK, http.StatusOK} { // a repeated report is fine
		if code := agent.ack(command); code != want {
			t.Errorf("report: %d, want %d", code, want)
		}
	}
	if _, err := p.await(ids[0], configured); err != nil {
		t.Fatal(err)
	}
	if code := agent.ack("another"); code != http.StatusConflict {
		t.Errorf("a report on no command: %d, want 409", code)
	}
	if code, c := agent.poll(0); code != http.StatusNoContent {
		t.Errorf("after the report: %d %v, want 204", code, c)
	}
	if _, shown := fetch(t, api+"/instance/v1/zones/fr-par-1/servers/"+server, secretKey); !regexp.MustCompile(`cluster[=:]c"`).MatchString(shown) {
		t.Errorf("the cluster is not among the tags: %s", shown)
	}

	// Tokens outlive the process while the secret does.
	p.kill()
	p = startProvider(t, env, nil, args...)
	agent = dial(ids[0], agent.token)
	drain := p.must("Drain", ids[0], token{}, unspecified)
	code, pending := agent.poll(30)
	if code != http.StatusOK || pending["kind"] != "drain" || pending["command_id"] != drain || pending["blob"] != nil {
		t.Fatalf("Drain: %d %v", code, pending)
	}
	agent.ack(drain)
	if _, err := p.await(ids[0], idle); err != nil {
		t.Fatal(err)
	}
	p.must("Delete", ids[0], token{}, speculative)
	await(t, "the end of the server and its volumes", func() bool {
		_, servers := fetch(t, api+"/debug/servers", "")
		_, body := fetch(t, api+"/debug/leaks", "")
		var leaks []any
		if err := json.Unmarshal([]byte(body), &leaks); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return !strings.Contains(servers, server) && len(leaks) == 0
	})
	hidden := canaries{"blob": string(blob), "secret key": secretKey, "bootstrap secret": secret, "token": agent.token}
	hidden.in(t, "the log", []byte(p.text()))

	// A random secret is announced, and the tokens of another are worth nothing.
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	without := environment()
	for _, v := range env {
		if !strings.HasPrefix(v, "BIGFLEET_BOOTSTRAP_SECRET=") {
			without = append(without, v)
		}
	}
	p = startProvider(t, without, nil, append(args, "--allow-random-secret")...)
	p.line(`level=WARN.*BIGFLEET_BOOTSTRAP_SECRET is not set`)
	if code, _ := dial(ids[0], agent.token).poll(0); code != http.StatusUnauthorized {
		t.Errorf("a token of another secret: %d, want 401", code)
	}
}

// fetch returns what an address of the fake cloud shows.
func fetch(t *testing.T, address, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-Auth-Token", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
