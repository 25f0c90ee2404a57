package e2e

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/telemetry"
)

var (
	typeLine = regexp.MustCompile(`^# TYPE (\S+) (\S+)$`)
	sample   = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	labelOf  = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// exposition is what a scrape shows of the provider's own metrics.
type exposition struct {
	types  map[string]string
	series map[string]bool     // without values
	labels map[string][]string // by the name of the metric
}

func (p *provider) exposition(t *testing.T) exposition {
	t.Helper()
	_, text := p.scrape(t, "/metrics")
	e := exposition{map[string]string{}, map[string]bool{}, map[string][]string{}}
	prefix := telemetry.Prefix("scaleway")
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		if m := typeLine.FindStringSubmatch(l); m != nil {
			if name, own := strings.CutPrefix(m[1], prefix); own {
				e.types[name] = m[2]
			}
			continue
		}
		m := sample.FindStringSubmatch(l)
		if len(m) == 0 || !strings.HasPrefix(m[1], prefix) {
			continue
		}
		e.series[m[1]+"{"+m[2]+"}"] = true
		name := strings.TrimPrefix(m[1], prefix)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && e.types[base] == string(telemetry.Histogram) {
				name = base
			}
		}
		for _, l := range labelOf.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && !slices.Contains(e.labels[name], l[1]) {
				e.labels[name] = append(e.labels[name], l[1])
			}
		}
	}
	return e
}

// TestMetricsOfALife: what the built provider shows after a whole life is what
// telemetry.Metrics() says, in type and labels.
func TestMetricsOfALife(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--api-rate=1000", "--reconcile-interval=1s")
	id := p.machines(1)[0]
	for i, kind := range kinds {
		p.must(kind, id, token{"s", 1, int64(i + 1)}, []pb.MachineState{idle, configured, idle, speculative}[i])
	}
	_, err := p.call("Create", id, token{"s", 1, 1})
	if err == nil {
		t.Error("a stale token was taken")
	}
	await(t, "a pass", func() bool { return p.counter(t, `bigfleet_scaleway_reconciles_total{result="complete"}`) > 1 })

	e := p.exposition(t)
	known := map[string]telemetry.Metric{}
	for _, m := range telemetry.Metrics() {
		known[m.Name] = m
	}
	for name, kind := range e.types {
		if m, ok := known[name]; !ok || string(m.Type) != kind {
			t.Errorf("%s is a %s, and telemetry.Metrics() says %q", name, kind, m.Type)
		}
		got, want := slices.Sorted(slices.Values(e.labels[name])), slices.Sorted(slices.Values(known[name].Labels))
		if len(got) > 0 && !slices.Equal(got, want) {
			t.Errorf("%s has the labels %q, and telemetry.Metrics() says %q", name, got, want)
		}
	}
	// What a life must have moved, by the series' own values.
	for series, least := range map[string]float64{
		`bigfleet_scaleway_transition_duration_seconds_count{kind="Create",outcome="ok"}`:                                            1,
		`bigfleet_scaleway_transition_duration_seconds_count{kind="Delete",outcome="ok"}`:                                            1,
		`bigfleet_scaleway_step_duration_seconds_count{kind="Configure",outcome="ok",step="deliver"}`:                                1,
		`bigfleet_scaleway_rpc_duration_seconds_count{code="FailedPrecondition",method="Create"}`:                                    1,
		`bigfleet_scaleway_channel_handover_duration_seconds_count{kind="configure"}`:                                                1,
		`bigfleet_scaleway_store_commit_duration_seconds_count{result="ok"}`:                                                         4,
		`bigfleet_scaleway_price_refreshes_total{result="ok"}`:                                                                       1,
		`bigfleet_scaleway_inventory_up`:                                                                                             1,
		`bigfleet_scaleway_cloud_budget_rate_configured`:                                                                             1000,
		`bigfleet_scaleway_machines{capacity="on_demand",state="SPECULATIVE",type="DEV1-S"}`:                                         1,
		`bigfleet_scaleway_oldest_operation_age_seconds{kind="Create"}`:                                                              0,
		`bigfleet_scaleway_certificate_expiry_timestamp_seconds{certificate="channel"}`:                                              float64(time.Now().Unix()),
		`bigfleet_scaleway_cloud_request_duration_seconds_count{method="POST",route="/instance/v1/zones/{id}/servers",status="2xx"}`: 1,
	} {
		if got := p.counter(t, series); got < least {
			t.Errorf("%s is %v, want %v or more", series, got, least)
		}
	}
	// A line for each edge, with what one searches for.
	for _, state := range []string{"IDLE", "CONFIGURED", "SPECULATIVE"} {
		p.line(`msg="transition done" .*machine_id=` + id + ` .*operation_id=\S+ state=` + state + ` step=\S+ duration=\S+`)
	}
	for _, state := range []string{"CREATING", "CONFIGURING", "DRAINING", "DELETING"} {
		p.line(`msg="transition accepted" .*machine_id=` + id + ` .*operation_id=\S+ state=` + state)
	}
}

// TestSeriesStayBounded sends 10,000 ids of machines, shards, clusters, hosts and
// agents that nobody knows: not one of them may make a series.
func TestSeriesStayBounded(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.pair("channel", nil)
	p := startProvider(t, environment("BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef"), nil, "--use-fake-backend", "--provider=certify",
		"--bootstrap-addr=127.0.0.1:0", "--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert="+cert, "--bootstrap-tls-key="+key, "--bootstrap-ca="+a.pem)
	channel := "https://" + p.line(`msg="serving the bootstrap channel".*listen=(\S+)`)[1]
	client := a.trusting(0)
	burst := func(n int) {
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				for i := range n / 8 {
					id := uuid.NewString()
					_, _ = p.Get(ctx, &pb.MachineRef{Id: id}) // refused, all of them
					_, _ = p.Create(ctx, &pb.CreateRequest{MachineId: id, ShardId: id, ShardEpoch: int64(i), SequenceNumber: 1})
					_, _ = p.Configure(ctx, &pb.ConfigureRequest{MachineId: id, ClusterId: id, BootstrapBlob: []byte(id)})
				}
			})
		}
		for range n / 10 {
			id := uuid.NewString()
			if code, _, _ := (host{t: t, client: client, channel: channel, id: id, token: id}).do(http.MethodGet, "/v1/command", "", nil); code != http.StatusUnauthorized {
				t.Errorf("a host that nobody knows got %d", code)
			}
		}
		work.Wait()
	}
	burst(80)
	before := p.exposition(t)
	burst(10_000)
	after := p.exposition(t)
	var more []string
	for series := range after.series {
		if !before.series[series] {
			more = append(more, series)
		}
	}
	if len(more) > 0 {
		t.Errorf("%d series more, such as %q", len(more), more[:min(len(more), 5)])
	}
	if len(after.series) > 2000 {
		t.Errorf("%d series", len(after.series))
	}
}
