package certificates

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// LookInterval is how often followed files are looked at. A replaced file is
	// served two looks later at most.
	LookInterval = 2 * time.Second
	// Ahead is how long before a certificate's end it is warned of.
	Ahead = 14 * 24 * time.Hour
	// day is how often.
	day = 24 * time.Hour
)

// Keeper watches over the certificates of a process.
type Keeper struct {
	all     []*Live
	reload  bool
	log     *slog.Logger
	expiry  *prometheus.GaugeVec
	reloads *prometheus.CounterVec
}

// NewKeeper shows when the certificates end. With reload, Run also follows their
// files.
func NewKeeper(reg prometheus.Registerer, log *slog.Logger, reload bool, all ...*Live) *Keeper {
	k := &Keeper{
		all: all, reload: reload, log: log,
		expiry:  telemetry.MetricCertificateExpiry.GaugeVec(),
		reloads: telemetry.MetricCertificateReloads.CounterVec(),
	}
	reg.MustRegister(k.expiry, k.reloads)
	for _, l := range all {
		k.show(l)
		if k.follows(l) {
			k.reloads.WithLabelValues(l.src.Name, "ok")
			k.reloads.WithLabelValues(l.src.Name, "failed")
		}
	}
	return k
}

func (k *Keeper) follows(l *Live) bool { return k.reload && l.src.Cert.Path != "" }

func (k *Keeper) show(l *Live) {
	for _, end := range l.Ends() {
		k.expiry.WithLabelValues(end.Name).Set(float64(end.At.Unix()))
	}
}

// warn says which certificates end soon, and which have.
func (k *Keeper) warn(now time.Time, l *Live) {
	for _, end := range l.Ends() {
		switch left := end.At.Sub(now); {
		case left <= 0:
			k.log.Error("a certificate has ended and is refused; replace it", telemetry.KeyCert, end.Name, "subject", end.Subject, "ended", end.At.UTC())
		case left < Ahead:
			k.log.Warn("a certificate ends soon; replace it", telemetry.KeyCert, end.Name, "subject", end.Subject, "ends", end.At.UTC(), "days", int(left/day))
		}
	}
	for _, end := range l.ending(now) {
		k.log.Warn("a CA of the bundle ends soon; clients with certificates from it will be refused, other clients will not",
			telemetry.KeyCert, end.Name, "subject", end.Subject, "ends", end.At.UTC(), "days", int(end.At.Sub(now)/day))
	}
}

// Run warns of ends at once and daily, and follows the files if the keeper was
// made to, until ctx ends. It is called once.
func (k *Keeper) Run(ctx context.Context) error {
	for _, l := range k.all {
		k.warn(time.Now(), l)
	}
	daily := time.NewTicker(day)
	defer daily.Stop()
	var looks <-chan time.Time
	if k.reload {
		ticker := time.NewTicker(LookInterval)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-daily.C:
			for _, l := range k.all {
				k.warn(now, l)
			}
		case now := <-looks:
			for _, l := range k.all {
				if k.follows(l) {
					k.follow(now, l)
				}
			}
		}
	}
}

func (k *Keeper) follow(now time.Time, l *Live) {
	switch what, err := l.look(now); what {
	case swapped:
		k.reloads.WithLabelValues(l.src.Name, "ok").Inc()
		k.show(l)
		leaf := l.Current().Chain[0]
		k.log.Info("replaced certificate files are served from now on", telemetry.KeyCert, l.src.Name,
			"serial", leaf.SerialNumber.Text(16), "ends", leaf.NotAfter.UTC())
		k.warn(now, l)
	case failed:
		k.reloads.WithLabelValues(l.src.Name, "failed").Inc()
		k.log.Warn("replaced certificate files cannot be used; the ones before them are served on", telemetry.KeyCert, l.src.Name, telemetry.KeyError, err.Error())
	case unchanged:
	}
}
