package operator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/doctor"
)

// diagnose runs doctor and returns its findings by check; of a check with
// several, the last.
func diagnose(t *testing.T, args ...string) (code int, found map[string]doctor.Finding) {
	t.Helper()
	code, stdout, stderr := capacityctl(append([]string{"doctor", "-o=json"}, args...)...)
	var list []doctor.Finding
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || stderr != "" {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	found = map[string]doctor.Finding{}
	for _, f := range list {
		found[f.Check] = f
	}
	return code, found
}

// expect judges one finding.
func expect(t *testing.T, found map[string]doctor.Finding, check string, level doctor.Level, words string) {
	t.Helper()
	f := found[check]
	if f.Level != level || !strings.Contains(f.Detail+"\n"+f.Advice, words) {
		t.Errorf("%s is %q: %s (%s), want %s and %q", check, f.Level, f.Detail, f.Advice, level, words)
	}
	if (f.Level == doctor.OK) != (f.Advice == "") {
		t.Errorf("%s is %s, with the advice %q", check, f.Level, f.Advice)
	}
}

func validity(from, until time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(until) }
}

func uris(links ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(365 * 24 * time.Hour)
		for _, l := range links {
			u, err := url.Parse(l)
			if err != nil {
				panic(err)
			}
			c.URIs = append(c.URIs, u)
		}
	}
}

const year = 365 * 24 * time.Hour

// TestDoctorOnThePort breaks a port in every way that is told apart.
func TestDoctorOnThePort(t *testing.T) {
	const name = "provider.example"
	good, ca, _ := certificate(t, name, validity(-time.Hour, year))
	_, otherCA, _ := certificate(t, name)
	ended, endedCA, _ := certificate(t, name, validity(-year, -time.Hour))
	early, earlyCA, _ := certificate(t, name, validity(time.Hour, year))
	soon, soonCA, _ := certificate(t, name, validity(-time.Hour, 3*24*time.Hour))
	s := &scripted{machines: fleet()}
	shows := func(pair tls.Certificate, most uint16) string {
		return serve(t, s, &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: most, Certificates: []tls.Certificate{pair}})
	}
	plain, secure := serve(t, s, nil), shows(good, tls.VersionTLS13)
	silent := &scripted{health: health{status: healthpb.HealthCheckResponse_NOT_SERVING}}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	for what, tt := range map[string]struct {
		args  []string
		check string
		level doctor.Level
		words string
	}{
		"all is well":      {[]string{"--addr=" + secure, "--tls-ca=" + ca}, "grpc expiry", doctor.OK, "in 364 days"},
		"TLS 1.3":          {[]string{"--addr=" + secure, "--tls-ca=" + ca}, "grpc tls", doctor.OK, "TLS 1.3"},
		"open to all":      {[]string{"--addr=" + secure, "--tls-ca=" + ca}, "grpc calls", doctor.Warn, "without a client certificate"},
		"plaintext":        {[]string{"--addr=" + plain, "--insecure"}, "grpc tls", doctor.OK, "loopback"},
		"nobody":           {[]string{"--addr=" + freePort(t), "--insecure"}, "grpc port", doctor.Fail, "connection refused"},
		"TLS to plaintext": {[]string{"--addr=" + plain}, "grpc tls", doctor.Fail, "Give --insecure"},
		"plaintext to TLS": {[]string{"--addr=" + secure, "--insecure"}, "grpc tls", doctor.Fail, "Leave --insecure out"},
		"no gRPC":          {[]string{"--addr=" + page.Listener.Addr().String(), "--insecure"}, "grpc health", doctor.Fail, "--metrics-addr"},
		"another CA":       {[]string{"--addr=" + secure, "--tls-ca=" + otherCA}, "grpc chain", doctor.Fail, "--tls-ca"},
		"the system's CAs": {[]string{"--addr=" + secure}, "grpc chain", doctor.Fail, "unknown authority"},
		"ended":            {[]string{"--addr=" + shows(ended, tls.VersionTLS13), "--tls-ca=" + endedCA}, "grpc expiry", doctor.Fail, "ended"},
		"ended, chain":     {[]string{"--addr=" + shows(ended, tls.VersionTLS13), "--tls-ca=" + endedCA}, "grpc chain", doctor.OK, "CN=" + name},
		"not yet valid":    {[]string{"--addr=" + shows(early, tls.VersionTLS13), "--tls-ca=" + earlyCA}, "grpc expiry", doctor.Fail, "clock is wrong"},
		"ends soon":        {[]string{"--addr=" + shows(soon, tls.VersionTLS13), "--tls-ca=" + soonCA}, "grpc expiry", doctor.Warn, "in 2 days"},
		"another name":     {[]string{"--addr=" + secure, "--tls-ca=" + ca, "--tls-server-name=other"}, "grpc name", doctor.Fail, "not other"},
		"TLS 1.2":          {[]string{"--addr=" + shows(good, tls.VersionTLS12), "--tls-ca=" + ca}, "grpc tls", doctor.Warn, "TLS 1.2"},
		"not serving":      {[]string{"--addr=" + serve(t, silent, nil), "--insecure"}, "grpc health", doctor.Fail, "NOT_SERVING"},
	} {
		t.Run(what, func(t *testing.T) {
			if !strings.Contains(strings.Join(tt.args, " "), "--insecure") && !strings.Contains(strings.Join(tt.args, " "), "server-name") {
				tt.args = append(tt.args, "--tls-server-name="+name)
			}
			code, found := diagnose(t, tt.args...)
			expect(t, found, tt.check, tt.level, tt.words)
			failed := false
			for _, f := range found {
				failed = failed || f.Level == doctor.Fail
			}
			if failed != (code == exitFailed) || !failed && code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestDoctorOnIdentity(t *testing.T) {
	const name = "provider.example"
	s := &scripted{machines: fleet()}
	server, ca, _ := certificate(t, name, validity(-time.Hour, year))
	noClient := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	for what, tt := range map[string]struct {
		edit  func(*x509.Certificate)
		check string
		level doctor.Level
		words string
	}{
		"shard":       {uris("bigfleet://shard/s-1"), "client identity", doctor.OK, "--shard s-1"},
		"reader":      {uris("bigfleet://readonly"), "client identity", doctor.OK, "only read"},
		"none":        {uris("spiffe://else"), "client identity", doctor.Warn, "--require-shard-identity"},
		"two":         {uris("bigfleet://shard/a", "bigfleet://shard/b"), "client identity", doctor.Fail, "2 bigfleet:// identities"},
		"malformed":   {uris("bigfleet://shard/"), "client identity", doctor.Fail, "refused"},
		"spelling":    {uris("bigfleet://shard/a#b"), "client identity", doctor.Fail, "refused"},
		"ended":       {validity(-year, -time.Hour), "client expiry", doctor.Fail, "ended"},
		"for servers": {noClient, "client usage", doctor.Fail, "clientAuth"},
	} {
		t.Run(what, func(t *testing.T) {
			client, cert, key := certificate(t, "client", tt.edit)
			pool := x509.NewCertPool()
			pool.AddCert(client.Leaf)
			addr := serve(t, s, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.RequireAnyClientCert})
			_, found := diagnose(t, "--addr="+addr, "--tls-ca="+ca, "--tls-server-name="+name, "--tls-cert="+cert, "--tls-key="+key)
			expect(t, found, tt.check, tt.level, tt.words)
			expect(t, found, "client certificate", doctor.OK, "CN=client is taken")
			expect(t, found, "grpc calls", doctor.OK, "List is answered")
		})
	}
	mutual := serve(t, s, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert})
	_, found := diagnose(t, "--addr="+mutual, "--tls-ca="+ca, "--tls-server-name="+name)
	expect(t, found, "client certificate", doctor.Fail, "wants a client certificate")
	_, cert, key := certificate(t, "stranger")
	_, found = diagnose(t, "--addr="+mutual, "--tls-ca="+ca, "--tls-server-name="+name, "--tls-cert="+cert, "--tls-key="+key)
	expect(t, found, "client certificate", doctor.Fail, "must chain to the provider's --tls-ca")
	s.edit(func() { s.fail = status.Error(codes.PermissionDenied, "no identity") })
	_, found = diagnose(t, "--addr="+serve(t, s, nil), "--insecure")
	expect(t, found, "grpc calls", doctor.Fail, "bigfleet://shard/ID")
}

// metricsPort serves what a provider does; date and ready may be wrong.
func metricsPort(t *testing.T, skew time.Duration, ready int, metrics string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/readyz":
			w.WriteHeader(ready)
			fmt.Fprintln(w, "not ready: the inventory was not read yet")
		case "/metrics":
			fmt.Fprint(w, metrics)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestDoctorOnMetrics(t *testing.T) {
	addr := serve(t, &scripted{machines: []*pb.Machine{}}, nil)
	const build = "# TYPE bigfleet_scaleway_build_info gauge\nbigfleet_scaleway_build_info{version=\"1.2.3\"} 1\n"
	metric := func(name string, value any) string {
		return build + fmt.Sprintf("# TYPE bigfleet_scaleway_%s gauge\nbigfleet_scaleway_%s %v\n", strings.Split(name, "{")[0], name, value)
	}
	commits := func(ok, failed int) string {
		const name = "bigfleet_scaleway_store_commit_duration_seconds"
		text := build + "# TYPE " + name + " histogram\n"
		for result, n := range map[string]int{"ok": ok, "failed": failed} {
			text += fmt.Sprintf("%[1]s_bucket{result=%[2]q,le=\"+Inf\"} %[3]d\n%[1]s_sum{result=%[2]q} 1\n%[1]s_count{result=%[2]q} %[3]d\n", name, result, n)
		}
		return text
	}
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	for what, tt := range map[string]struct {
		skew    time.Duration
		ready   int
		metrics string
		check   string
		level   doctor.Level
		words   string
	}{
		"ready":            {0, 200, build, "ready", doctor.OK, ""},
		"version":          {0, 200, build, "metrics", doctor.OK, "1.2.3"},
		"not ready":        {0, 503, build, "ready", doctor.Fail, "the inventory was not read yet"},
		"another program":  {0, 404, "", "ready", doctor.Fail, "--metrics-addr"},
		"another's":        {0, 200, "up 1\n", "metrics", doctor.Fail, "no provider's"},
		"no metrics":       {0, 200, "<html>", "metrics", doctor.Fail, "cannot be read"},
		"clock":            {0, 200, build, "clock", doctor.OK, ""},
		"clock ahead":      {20 * time.Second, 200, build, "clock", doctor.Warn, "ahead of"},
		"clock behind":     {-5 * time.Minute, 200, build, "clock", doctor.Fail, "behind"},
		"inventory":        {0, 200, metric("inventory_up", 0), "inventory", doctor.Fail, "bigfleetinventoryunreadable"},
		"inventory read":   {0, 200, metric("inventory_up", 1), "inventory", doctor.OK, ""},
		"reconcile":        {0, 200, metric("last_reconcile_timestamp_seconds", in(-time.Hour)), "reconcile", doctor.Warn, "1h0m"},
		"prices":           {0, 200, metric("last_price_refresh_timestamp_seconds", 0), "prices", doctor.Warn, "yet"},
		"operations":       {0, 200, metric(`oldest_operation_age_seconds{kind="Create"}`, 7200), "operations", doctor.Warn, "2h0m0s"},
		"writes":           {0, 200, commits(7, 0), "state file", doctor.OK, "0 of 7"},
		"failed writes":    {0, 200, commits(5, 2), "state file", doctor.Warn, "2 of 7 writes failed"},
		"which to read":    {0, 200, commits(5, 2), "state file", doctor.Warn, "bigfleetstorefails"},
		"failed":           {0, 200, metric(`machines{state="FAILED"}`, 2), "failed machines", doctor.Warn, "2 of 2"},
		"not failed":       {0, 200, metric(`machines{state="IDLE"}`, 2), "failed machines", doctor.OK, "0 of 2"},
		"certificate":      {0, 200, metric(`certificate_expiry_timestamp_seconds{certificate="grpc"}`, in(-time.Hour)), "certificates", doctor.Fail, "grpc"},
		"certificate soon": {0, 200, metric(`certificate_expiry_timestamp_seconds{certificate="channel"}`, in(24*time.Hour)), "certificates", doctor.Warn, "channel"},
		"refused type":     {0, 200, metric(`type_blocked_until_timestamp_seconds{type="X"}`, in(time.Hour)), "refused types", doctor.Warn, "1 types"},
		"slots":            {0, 200, metric(`slots_left_out{type="X"}`, 3), "slots", doctor.Warn, "3 slots"},
		"orphans":          {0, 200, metric(`orphans{kind="server"}`, 1), "orphans", doctor.Warn, "no machine claims"},
		"tokens":           {0, 200, metric("channel_contested_machines", 1), "tokens", doctor.Warn, "second host"},
		"panics":           {0, 200, metric(`panics_total{place="rpc"}`, 1), "panics", doctor.Warn, "bigfleetpanics"},
	} {
		t.Run(what, func(t *testing.T) {
			_, found := diagnose(t, "--addr="+addr, "--insecure", "--metrics="+metricsPort(t, tt.skew, tt.ready, tt.metrics)+"/")
			expect(t, found, tt.check, tt.level, tt.words)
		})
	}
	_, found := diagnose(t, "--addr="+addr, "--insecure", "--metrics=http://"+freePort(t))
	expect(t, found, "ready", doctor.Fail, "connection refused")
}

func TestDoctorOnTheChannel(t *testing.T) {
	addr := serve(t, &scripted{}, nil)
	start := func(skew time.Duration, code int, edit func(*x509.Certificate)) (link, ca string) {
		pair, ca, _ := certificate(t, "127.0.0.1", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}; edit(c) })
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
			w.WriteHeader(code)
		}))
		srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv.URL, ca
	}
	for what, tt := range map[string]struct {
		skew  time.Duration
		code  int
		edit  func(*x509.Certificate)
		check string
		level doctor.Level
		words string
	}{
		"well":       {0, 401, validity(-time.Hour, year), "channel answer", doctor.OK, "401"},
		"clock":      {time.Hour, 401, validity(-time.Hour, year), "clock", doctor.Fail, "the clock of channel is 1h0m0s ahead"},
		"gateway":    {0, 502, validity(-time.Hour, year), "channel answer", doctor.Fail, "end the TLS"},
		"ended":      {0, 401, validity(-year, -time.Hour), "channel expiry", doctor.Fail, "ended"},
		"ended, and": {0, 401, validity(-year, -time.Hour), "clock", doctor.OK, ""},
		"name":       {0, 401, func(c *x509.Certificate) { c.IPAddresses = nil }, "channel name", doctor.Fail, "issued for this name"},
	} {
		t.Run(what, func(t *testing.T) {
			link, ca := start(tt.skew, tt.code, tt.edit)
			_, found := diagnose(t, "--addr="+addr, "--insecure", "--channel="+link, "--channel-ca="+ca)
			expect(t, found, tt.check, tt.level, tt.words)
		})
	}
	link, _ := start(0, 401, validity(-time.Hour, year))
	_, found := diagnose(t, "--addr="+addr, "--insecure", "--channel="+link)
	expect(t, found, "channel chain", doctor.Fail, "--channel-ca")
	_, found = diagnose(t, "--addr="+addr, "--insecure", "--channel=https://"+freePort(t))
	expect(t, found, "channel port", doctor.Fail, "--bootstrap-addr")
}

// TestDoctorInWords: each finding is a line, with advice below.
func TestDoctorInWords(t *testing.T) {
	code, stdout, stderr := capacityctl("doctor", "--insecure", "--addr="+serve(t, &scripted{}, nil))
	if code != exitOK || stderr != "" || !strings.HasSuffix(stdout, "\n4 checks: 4 OK, 0 WARN, 0 FAIL\nNot looked at: the bootstrap channel (--channel URL), readiness and gauges (--metrics URL), the clock (either of them)\n") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = capacityctl("doctor", "--insecure", "--addr="+freePort(t))
	if code != exitFailed || stderr != "" || !strings.HasPrefix(stdout, "FAIL  grpc port           127.0.0.1:") || !strings.Contains(stdout, "\n      Is the provider running") || !strings.Contains(stdout, "\n1 check: 0 OK,") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
