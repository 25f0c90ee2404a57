package provider

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/token"
)

// BenchmarkScrape is one scrape of a provider with so many machines, of 40 types
// and in every state, all of whose hosts were heard from.
func BenchmarkScrape(b *testing.B) {
	for _, machines := range []int{100, 100_000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			st, err := store.Open(store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := st.Close(); err != nil {
					b.Error(err)
				}
			})
			const batch = 1000
			for i := 0; i < machines; i += batch {
				ids := make([]string, min(batch, machines))
				for j := range ids {
					ids[j] = fmt.Sprint("m-", i+j)
				}
				if _, err := st.DoMany(b.Context(), ids, func(current []machine.Record) ([]machine.Next, error) {
					next := make([]machine.Next, len(current))
					for j, rec := range current {
						rec.State = machine.State(1 + (i+j)%8)
						rec.Offer = &machine.Offer{InstanceType: fmt.Sprint("TYPE-", j%40), Capacity: machine.OnDemand, PricePerHour: 0.1}
						next[j] = machine.Next{Record: rec, Change: machine.Visible}
					}
					return next, nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			reg := telemetry.NewRegistry("toy", "p", "bench")
			newMetrics(reg)
			reg.MustRegister(newFleet(st, lifecycle.New(lifecycle.Options{})))
			secret, err := token.NewSecret(make([]byte, token.MinSecretBytes))
			if err != nil {
				b.Fatal(err)
			}
			ch, err := channel.New(channel.Options{
				Secret: secret, Life: func(string) (channel.Life, bool) { return channel.Life{ID: "op-1"}, true }, Settled: func(string, string) bool { return false },
				Log: slog.New(slog.DiscardHandler), Metrics: reg,
			})
			if err != nil {
				b.Fatal(err)
			}
			hosts := ch.Handler()
			for i := range machines {
				id := fmt.Sprint("m-", i)
				r := httptest.NewRequest(http.MethodGet, "/v1/command?machine_id="+id, nil)
				r.Header.Set("Authorization", "Bearer "+token.Derive(secret, id, "op-1"))
				hosts.ServeHTTP(httptest.NewRecorder(), r)
			}
			handler := telemetry.NewHandler(reg, func() []string { return nil })
			scrape := func() int {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if w.Code != http.StatusOK {
					b.Fatalf("%d: %s", w.Code, w.Body)
				}
				return w.Body.Len()
			}
			bytes := scrape()
			var slowest time.Duration
			for b.Loop() {
				began := time.Now()
				scrape()
				slowest = max(slowest, time.Since(began))
			}
			b.ReportMetric(float64(bytes)/1024, "KiB")
			b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
		})
	}
}
