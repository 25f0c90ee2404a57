package provider

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
)

// Opening is what Settings.Open makes a backend with.
type Opening struct {
	Version string // the program's, for the API
	// Transport is the way to the API, measured and traced. What limits calls goes
	// around it, so that a call's duration is the cloud's own.
	Transport http.RoundTripper
	Metrics   prometheus.Registerer
	Log       *slog.Logger
	// Trial asks for the fake, nil for the cloud.
	Trial *Trial
	// ReadOnly says that nothing will be made, so that a fake needs no hosts.
	ReadOnly bool
}

// Backend is a cloud as the parts of the process use it.
type Backend struct {
	Cloud    cloud.Cloud   // required, as are Catalog and Prober
	Deleter  cloud.Deleter // nil where hosts cannot be given back
	Sweeper  cloud.Sweeper // nil where nothing outlives its server
	Catalog  cloud.Catalog
	Fitter   cloud.Fitter // nil where orders cannot be judged beforehand
	Prober   cloud.Prober
	Keeper   cloud.Keeper   // nil where what a failure leaves is removed
	Adopter  cloud.Adopter  // nil where no server can be given by hand
	Returner cloud.Returner // nil where no server is ever spare
	// Poll is how often the cloud may be asked about a host that is waited for; 0 is
	// 5 s.
	Poll time.Duration
	// Delivery reaches hosts; required where Vendor.Delivers.
	Delivery delivery.Delivery
	// HoldOrders is told of a state that does not know what was ordered since then;
	// nil where such an order is removed later.
	HoldOrders func(since time.Time)
	// Startable asks the cloud, and is an error when nothing could ever be made; what
	// could not be found out is for the log. nil asks nobody.
	Startable func(ctx context.Context) error
	// Reach says of which offerings the servers may not reach what they need; nil
	// says nothing.
	Reach func([]offering.Offering) []string
	// Fake is set when Opening.Trial was, and only then.
	Fake *Fake
}

// Fake is what else there is to a backend that is a fake.
type Fake struct {
	// Scaled is a delay of the cloud's at the fake's pace.
	Scaled func(time.Duration) time.Duration
	// Processes says that hosts are processes, which dial the channel's real address
	// and outlive a crash of this one. Others have Trial.Dial.
	Processes bool
	// Restore makes the servers of the machines on record again, under their ids, and
	// boots their hosts.
	Restore func(records iter.Seq[machine.Record], userData func(machineID, operationID string) ([]byte, error)) error
	// Close ends the API, the cloud and its hosts.
	Close func() error
}

// openBackend opens the vendor's cloud and refuses one that is not what was asked
// for: a trial on the real cloud would make real servers, with nothing checked.
func openBackend(ctx context.Context, c *Config, o Opening) (*Backend, error) {
	back, err := c.settings.Open(ctx, c, o)
	if err != nil {
		return nil, err
	}
	if err := back.fits(c.vendor, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%s's adapter is faulty, and nothing was done with it: %w", c.vendor.Title, err), back.close())
	}
	return back, nil
}

// fits is an error when the backend is not what the vendor has promised.
func (b *Backend) fits(v Vendor, o Opening) error {
	var errs []error
	switch {
	case o.Trial != nil && b.Fake == nil:
		errs = append(errs, errors.New("a fake was asked for, and it opened the real cloud"))
	case o.Trial == nil && b.Fake != nil:
		errs = append(errs, errors.New("the real cloud was asked for, and it opened a fake"))
	}
	for _, part := range []struct {
		name string
		lack bool
	}{
		{"Cloud", b.Cloud == nil}, {"Catalog", b.Catalog == nil}, {"Prober", b.Prober == nil},
		{"Delivery", v.Delivers && b.Delivery == nil},
		{"Fake.Scaled, Restore or Close", b.Fake != nil && (b.Fake.Scaled == nil || b.Fake.Restore == nil || b.Fake.Close == nil)},
	} {
		if part.lack {
			errs = append(errs, fmt.Errorf("it has no %s", part.name))
		}
	}
	return errors.Join(errs...)
}

// startable is an error when nothing could ever be made.
func (b *Backend) startable(ctx context.Context) error {
	if b.Startable == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	return b.Startable(asking)
}

// close ends a fake; the cloud itself stays.
func (b *Backend) close() error {
	if b.Fake == nil || b.Fake.Close == nil {
		return nil
	}
	return b.Fake.Close()
}

// transport is Opening.Transport.
func transport(vendor string, reg prometheus.Registerer, traces *tracing.Tracing, log *slog.Logger) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = maxCloudSteps
	return traces.Transport(telemetry.NewTransport(t, vendor, reg, log))
}
