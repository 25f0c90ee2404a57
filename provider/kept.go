package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// maxReasonBytes bounds the reason of a release, which is logged.
const maxReasonBytes = 512

// keptHandlers show and release hosts and servers that are still billed and belong to no machine.
type keptHandlers struct {
	engine   *lifecycle.Engine
	returner cloud.Returner // nil where no server is ever spare
	log      *slog.Logger
}

// shownKept is the answer to GET /kept.
type shownKept struct {
	Hosts  []shownHost  `json:"hosts"`
	Spares []shownSpare `json:"spares"`
}

type shownHost struct {
	MachineID    string    `json:"machine_id"`
	Host         string    `json:"host"`
	Type         string    `json:"type"`
	Cluster      string    `json:"cluster,omitempty"`
	PricePerHour float64   `json:"price_per_hour"`
	Since        time.Time `json:"since"`
	Until        time.Time `json:"until"`
	LastError    string    `json:"last_error"`
	Then         string    `json:"then,omitempty"`
}

type shownSpare struct {
	Host    string    `json:"host"`
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Created time.Time `json:"created"`
	Since   string    `json:"since"`
	Billing string    `json:"billing"`
	Keep    string    `json:"keep,omitempty"`
}

func (h *keptHandlers) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /kept", h.list)
	mux.HandleFunc("POST /kept/hosts/{machine}/release", h.releaseHost)
	mux.HandleFunc("POST /kept/spares/{host}/release", h.releaseSpare)
}

func (h *keptHandlers) list(w http.ResponseWriter, r *http.Request) {
	shown := shownKept{Hosts: []shownHost{}, Spares: []shownSpare{}}
	for _, k := range h.engine.Kept() {
		shown.Hosts = append(shown.Hosts, shownHost{k.MachineID, k.Ref, k.Type, k.Cluster, k.PricePerHour, k.Since.UTC(), k.Until.UTC(), k.LastError, k.Then})
	}
	if h.returner != nil {
		spares, err := h.returner.Spares(r.Context())
		if err != nil {
			http.Error(w, "the spare servers cannot be read: "+err.Error(), http.StatusBadGateway)
			return
		}
		for _, s := range spares {
			shown.Spares = append(shown.Spares, shownSpare{s.Ref, s.Type, s.Status, s.Created.UTC(), s.Since, s.Billing, s.Keep})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(shown) // the other end may be gone
}

// reason reads why something is released; it answers the request if there is
// none that can be logged.
func reason(w http.ResponseWriter, r *http.Request) (string, bool) {
	text := r.URL.Query().Get("reason")
	switch {
	case text == "":
		http.Error(w, "a reason is missing; it is logged", http.StatusBadRequest)
	case len(text) > maxReasonBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		http.Error(w, fmt.Sprintf("the reason must be one line of text of at most %d bytes", maxReasonBytes), http.StatusBadRequest)
	default:
		return text, true
	}
	return "", false
}

func (h *keptHandlers) releaseHost(w http.ResponseWriter, r *http.Request) {
	why, ok := reason(w, r)
	if !ok {
		return
	}
	id := r.PathValue("machine")
	err := h.engine.Release(r.Context(), id)
	log := h.log.With(telemetry.KeyMachine, id, telemetry.KeyReason, why, "uid", r.Context().Value(peerKey{}))
	var refused *machine.Error
	switch {
	case err == nil:
		log.Warn("an operator released the host of a failed machine")
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &refused) && refused.Code == machine.NotFound:
		http.Error(w, refused.Text, http.StatusNotFound)
	case errors.As(err, &refused) && refused.Code == machine.Misplaced:
		http.Error(w, refused.Text, http.StatusConflict)
	default:
		log.Error("the host of a failed machine could not be released", telemetry.KeyError, err.Error())
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (h *keptHandlers) releaseSpare(w http.ResponseWriter, r *http.Request) {
	why, ok := reason(w, r)
	if !ok {
		return
	}
	ref := r.PathValue("host")
	if h.returner == nil {
		http.Error(w, "this provider has no spare servers: it gives back what it does not use", http.StatusNotFound)
		return
	}
	log := h.log.With(telemetry.KeyInstance, ref, telemetry.KeyReason, why, "uid", r.Context().Value(peerKey{}))
	if err := h.engine.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	switch err := h.returner.Return(r.Context(), ref); {
	case err == nil:
		log.Warn("an operator released a spare server")
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, cloud.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, cloud.ErrInvalid), errors.Is(err, cloud.ErrConflict):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		log.Error("a spare server could not be released", telemetry.KeyError, err.Error())
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}
