package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Transport measures and logs the calls that go through it. It never touches
// headers, bodies or queries: they hold credentials and user data.
type Transport struct {
	next     http.RoundTripper
	cloud    string
	log      *slog.Logger
	routes   *routes
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// NewTransport wraps next for the calls to a cloud, which is named in the log,
// and registers its metrics with reg; a registry has one transport. Calls are logged at level
// debug.
func NewTransport(next http.RoundTripper, cloud string, reg prometheus.Registerer, log *slog.Logger) *Transport {
	t := &Transport{
		next:     next,
		cloud:    cloud,
		log:      log,
		routes:   newRoutes(),
		duration: MetricCloudRequests.HistogramVec(),
		inFlight: MetricCloudInFlight.Gauge(),
	}
	reg.MustRegister(t.duration, t.inFlight)
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.inFlight.Inc()
	begun := time.Now()
	resp, err := t.next.RoundTrip(r)
	took := time.Since(begun)
	t.inFlight.Dec()

	method, route, status := method(r.Method), t.routes.of(r.URL.Path), status(resp, err)
	t.duration.WithLabelValues(method, route, status).Observe(took.Seconds())
	// The error's text is the caller's to report: it may quote a proxy's URL,
	// credentials included.
	t.log.DebugContext(r.Context(), "called the cloud",
		KeyCloud, t.cloud, KeyMethod, method, KeyPath, r.URL.Path, KeyRoute, route, KeyStatus, status, KeyDuration, took)
	return resp, err
}

// status is the outcome as a label: the class of the answer's code, or the code
// itself where a class would hide what an operator has to act on.
func status(resp *http.Response, err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case err != nil:
		return "error"
	}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusTooManyRequests:
		return strconv.Itoa(code)
	case code >= 100 && code < 600:
		return strconv.Itoa(code/100) + "xx"
	default:
		return "other"
	}
}

// method bounds the label: a request's method is any text.
func method(m string) string {
	switch m {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return m
	default:
		return "other"
	}
}
