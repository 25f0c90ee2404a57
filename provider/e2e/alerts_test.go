package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
	hosts "bigfleet-providers/provider/internal/fakecloud/host"
)

// pace is how much faster than in the world the alert rules run in the test:
// five seconds are ten minutes. A scrape of a race-tested provider on a busy
// machine takes part of a second, so that it cannot be much faster.
const pace = 120

var durations = regexp.MustCompile(`(\[|for: )(\d+)([mhd])`)

// hurried is a rule file with all its durations divided by pace. What an
// expression compares with is left as it is.
func hurried(t *testing.T, rules []byte) string {
	t.Helper()
	unit := map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	n := 0
	fast := durations.ReplaceAllStringFunc(string(rules), func(found string) string {
		n++
		parts := durations.FindStringSubmatch(found)
		amount, err := strconv.Atoi(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s%dms", parts[1], (time.Duration(amount) * unit[parts[3]] / pace).Milliseconds())
	})
	if n < 20 {
		t.Fatalf("%d durations in the rules: did their form change?", n)
	}
	return fast
}

// prometheusServer is a Prometheus that scrapes one provider and runs our rules.
type prometheusServer struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, target string) prometheusServer {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed; make setup brings it")
	}
	rules, err := os.ReadFile("../../deploy/monitoring/scaleway-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: bigfleet
    static_configs: [{targets: ['%s']}]
`, target)
	for name, content := range map[string]string{"rules.yaml": hurried(t, rules), "prometheus.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addr := freeAddr(t)
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus:\n%s", tail(out.String(), 20))
		}
	})
	p := prometheusServer{t: t, url: "http://" + addr}
	await(t, "Prometheus", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// firing are the names of the alerts that fire.
func (p prometheusServer) firing() []string {
	p.t.Helper()
	_, body := fetch(p.t, p.url+"/api/v1/alerts", "")
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		p.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// await waits until each of the alerts has fired.
func (p prometheusServer) await(within time.Duration, want ...string) {
	p.t.Helper()
	missing := want
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		firing := p.firing()
		missing = slices.DeleteFunc(slices.Clone(missing), func(name string) bool { return slices.Contains(firing, name) })
		if len(missing) == 0 {
			return
		}
	}
	_, pending := fetch(p.t, p.url+"/api/v1/alerts", "")
	p.t.Fatalf("%v do not fire, but %v; all alerts: %s", missing, p.firing(), pending)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestAlertsFire injects faults into the cloud, the network and the calls, and
// has a Prometheus scrape the built provider and run the rules that we ship.
func TestAlertsFire(t *testing.T) {
	// Not in parallel: a scrape that a busy machine delays past its second is one
	// that Prometheus did not get, and each begins the rules' pauses anew.
	var cut atomic.Bool // the hosts' network
	cloud := fakecloud.New(fakecloud.Options{Scale: 0.02, Hosts: hosts.NewInProcess(hosts.InProcessOptions{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if cut.Load() {
				return nil, syscall.ENETUNREACH
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})})
	api := httptest.NewServer(cloud.Handler())
	t.Cleanup(func() {
		cloud.Close()
		api.Close()
	})
	ca := newAuthority(t) // ends in an hour
	cert, key := ca.pair("channel", nil)
	channel, metrics := freeAddr(t), freeAddr(t)
	env := environment(
		"SCW_API_URL="+api.URL, "SCW_ACCESS_KEY="+fakecloud.DefaultAccessKey, "SCW_SECRET_KEY="+fakecloud.DefaultSecretKey,
		"SCW_DEFAULT_PROJECT_ID="+fakecloud.DefaultProjectID, "BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
	)
	args := []string{
		"--metrics-addr=" + metrics, "--provider=certify", "--zone=fr-par-1", "--scaleway-backend=scaleway", "--agent-install=image",
		"--offerings=" + write(t, "offerings.json", `[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 500}, {"commercial_type": "PRO2-XXS", "zone": "fr-par-1", "count": 500}]`),
		"--state=" + filepath.Join(t.TempDir(), "state.db"), "--bootstrap-addr=" + channel, "--bootstrap-endpoint=https://" + channel,
		"--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key, "--bootstrap-ca=" + ca.pem,
		"--poll-interval=50ms", "--settle-window=1s", "--reconcile-interval=1s", "--type-pause=100ms", "--type-pause-max=200ms",
		"--api-rate=200", "--api-burst=200",
	}
	p := startProvider(t, env, nil, args...)
	alerts := startPrometheus(t, metrics)
	ids := p.machines(1000)
	at := func(kind string) (found []string) {
		for _, id := range ids {
			if strings.Contains(id, kind) {
				found = append(found, id)
			}
		}
		return found
	}
	small, large := at("dev1-s"), at("pro2-xxs")
	for _, id := range small[:3] {
		p.must("Create", id, token{"s", 1, 1}, idle)
	}
	p.must("Configure", small[0], token{"s", 1, 2}, configured)

	// All is well, but for a certificate of one hour.
	alerts.await(30*time.Second, "BigFleetCertificateEnds", "BigFleetCertificateEndsSoon")
	for begun := time.Now(); time.Since(begun) < 8*time.Second; time.Sleep(time.Second) { // 16 minutes
		if got := alerts.firing(); len(got) != 2 {
			t.Fatalf("a healthy provider has the alerts %v", got)
		}
	}

	// A volume that nobody claims; then nothing works any more.
	body := fmt.Sprintf(`{"name": "stray", "project_id": %q, "from_empty": {"size": 10000000000}, "tags": ["bigfleet=certify", "bigfleet-machine=%s"]}`, fakecloud.DefaultProjectID, small[400])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/block/v1/zones/fr-par-1/volumes", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", fakecloud.DefaultSecretKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the volume was not made: %s", resp.Status)
	}
	cut.Store(true)
	p.kill()
	p = startProvider(t, env, nil, args...)
	await(t, "the volume in a pass", func() bool {
		_, text := p.scrape(t, "/metrics")
		return strings.Contains(text, `bigfleet_scaleway_orphans{kind="volume"} 1`)
	})
	var lift []func()
	for _, f := range []fakecloud.Fault{
		{Route: fakecloud.RouteListServers, Times: -1, Reply: fakecloud.Forbidden("instance_server", "list")},
		{Route: fakecloud.RouteServerAction, Action: "poweron", Times: -1, Reply: fakecloud.OutOfStock("DEV1-S")},
	} {
		lift = append(lift, cloud.Inject(f))
	}
	var shards sync.WaitGroup
	stop := make(chan struct{})
	quit := sync.OnceFunc(func() { close(stop) })
	defer shards.Wait()
	defer quit()
	shards.Go(func() {
		for i := 10; i < 490; i++ {
			_, _ = p.call("Create", small[i], token{"s", 1, 1}) // refused or failed, as it comes
			_, _ = p.call("Create", large[i], token{"s", 1, 1})
			_, _ = p.call("Drain", small[0], token{"s", 1, 1}) // stale
			select {
			case <-time.After(300 * time.Millisecond):
			case <-stop:
				return
			}
		}
	})
	alerts.await(2*time.Minute,
		"BigFleetNoCreateSucceeds", "BigFleetTransitionsFail", "BigFleetInventoryUnreadable", "BigFleetAPIDenied",
		"BigFleetFencingRejections", "BigFleetOrphans", "BigFleetAgentsLost", "BigFleetAgentsSilent")

	for _, remove := range lift {
		remove()
	}
	remove := cloud.Inject(fakecloud.Fault{Times: -1, Reply: fakecloud.InternalError()})
	alerts.await(time.Minute, "BigFleetAPIErrors")
	remove()
	cloud.Inject(fakecloud.Fault{Times: -1, Reply: fakecloud.RateLimited()})
	alerts.await(time.Minute, "BigFleetAPIBudgetLow")

	quit()
	shards.Wait()
	p.kill()
	alerts.await(30*time.Second, "BigFleetProviderDown")
}
