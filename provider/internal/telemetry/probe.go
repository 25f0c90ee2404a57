package telemetry

import (
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewHandler serves what the platform asks of a process: /metrics from reg,
// /healthz (the process answers) and /readyz (it may be given work). ready
// returns the reasons for not being ready, none when it is; they are shown to
// whoever asks and must not hold secrets. It is called from many goroutines.
func NewHandler(reg prometheus.Gatherer, ready func() []string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		// A collector that fails costs its own metrics and not all of them.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := ready()
		if len(reasons) == 0 {
			plain(w, http.StatusOK, "ready\n")
			return
		}
		plain(w, http.StatusServiceUnavailable, "not ready: "+strings.Join(reasons, "\nnot ready: ")+"\n")
	})
	return mux
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the reader may have gone; nobody is left to tell
}
