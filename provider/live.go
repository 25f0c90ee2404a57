package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// liveDeadline bounds a live check as a whole.
	liveDeadline = 3 * time.Minute
	// certificateSoon is how long before its end a certificate is worth a word.
	certificateSoon = 30 * 24 * time.Hour
)

// checkLive judges a valid configuration by the cloud itself: it makes calls that
// read, writes a line for each thing to w, and returns whether there was no
// fault among them. With the fake backend it asks a fake of its own.
func checkLive(ctx context.Context, cfg *Config, version string, w io.Writer) (fine bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, liveDeadline)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler) // the lines say it all
	findings, err := cfg.localFindings()
	if err != nil {
		return false, err
	}
	o := Opening{Version: version, Metrics: prometheus.NewRegistry(), Log: quiet, ReadOnly: true}
	o.Transport = transport(cfg.vendor.Name, o.Metrics, nil, quiet)
	if cfg.UseFake {
		if o.Trial, err = openTrial(cfg, "", quiet); err != nil { // the folder of the state is not this check's
			return false, err
		}
	}
	back, err := openBackend(ctx, cfg, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, back.close()) }()
	offerings, err := cfg.offerings()
	if err != nil {
		return false, err
	}
	var wanted []cloud.Wanted
	for i, o := range offerings {
		at := fmt.Sprintf("offerings[%d]", i)
		if cfg.Offerings == "" {
			at = "built-in mix"
		}
		w := cloud.Wanted{At: at, Type: o.CommercialType, Count: o.Count, Options: o.Options}
		if len(o.Servers) == 0 {
			wanted = append(wanted, w)
		}
		for j, id := range o.Servers {
			given := w
			given.At, given.Count, given.Options.Server = fmt.Sprintf("%s.servers[%d]", at, j), 1, id
			wanted = append(wanted, given)
		}
	}
	if back.Reach != nil {
		for _, words := range back.Reach(offerings) {
			findings = append(findings, cloud.Finding{Verdict: cloud.Doubt, What: "reach", Text: words})
		}
	}
	findings = append(findings, back.Prober.Probe(ctx, wanted)...)
	return report(w, findings)
}

// localFindings are what needs no cloud: Validate has judged it, and here are the
// figures.
func (c *Config) localFindings() ([]cloud.Finding, error) {
	if c.vendor.Delivers {
		return nil, nil
	}
	var findings []cloud.Finding
	ca := ""
	if c.Bootstrap.TLSCert != "" {
		live, err := certificates.Open(c.Bootstrap.source())
		if err != nil {
			return nil, err
		}
		leaf := live.Current().Chain[0]
		ca = live.Current().Bundle.PEM
		f := cloud.Finding{What: "channel certificate", Text: fmt.Sprintf("agents can verify it for %s; it ends on %s", c.Bootstrap.Endpoint, leaf.NotAfter.Format(time.DateOnly))}
		if time.Until(leaf.NotAfter) < certificateSoon {
			f.Verdict = cloud.Doubt
			f.Text += ": replace it before, and restart, unless --tls-reload follows it"
		}
		findings = append(findings, f)
	}
	params, err := c.wholeParams(ca)
	if err != nil {
		return nil, err
	}
	size, err := cloudinit.Size(params)
	if err != nil {
		return nil, err
	}
	return append(findings, cloud.Finding{What: "user data", Text: fmt.Sprintf("at most %d of %d bytes", size, params.Limit)}), nil
}

// report writes the findings, a line each, and a verdict on all.
func report(w io.Writer, findings []cloud.Finding) (bool, error) {
	words := map[cloud.Verdict]string{cloud.Fine: "ok", cloud.Unknown: "?", cloud.Doubt: "warn", cloud.Fault: "FAIL"}
	count := map[cloud.Verdict]int{}
	var b strings.Builder
	for _, f := range findings {
		count[f.Verdict]++
		fmt.Fprintf(&b, "%-5s %s: %s\n", words[f.Verdict], f.What, f.Text)
	}
	fmt.Fprintf(&b, "%d ok, %d not known, %d to look at, %d FAIL\n", count[cloud.Fine], count[cloud.Unknown], count[cloud.Doubt], count[cloud.Fault])
	_, err := io.WriteString(w, b.String())
	return count[cloud.Fault] == 0, err
}

const (
	accessTries = 3
	accessPause = 2 * time.Second
	// askDeadline bounds each question to the cloud at start.
	askDeadline = 15 * time.Second
)

// checkAccess asks the cloud at start whether it takes the credentials, and is
// an error only when it says no: then nothing would work, and a start that fails
// says so best. One refusal is not believed: fresh keys and policies hold after
// a while only. A cloud that cannot be asked does not stop the start, since the
// machines there are can be served.
func checkAccess(ctx context.Context, vendor string, prober cloud.Prober, pause time.Duration, log *slog.Logger) error {
	err := asked(ctx, pause, prober.Access)
	switch {
	case errors.Is(err, cloud.ErrDenied):
		return fmt.Errorf("the cloud refuses the credentials: %w; %s check-config --live tells more", err, vendor)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		log.Warn("the cloud cannot be asked whether it takes the credentials; starting all the same", telemetry.KeyError, err.Error())
		return nil
	}
	// Machines that are there can be served without it, so this does not end the
	// start.
	if err := asked(ctx, pause, prober.Missing); errors.Is(err, cloud.ErrDenied) {
		log.Error("the account lacks a permission that machines need", telemetry.KeyError, err.Error())
	}
	return context.Cause(ctx)
}

// asked asks a question again while the answer is a refusal, a few times.
func asked(ctx context.Context, pause time.Duration, question func(context.Context) error) error {
	var err error
	for try := range accessTries {
		if try > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		asking, cancel := context.WithTimeout(ctx, askDeadline)
		err = question(asking)
		cancel()
		if !errors.Is(err, cloud.ErrDenied) {
			break
		}
	}
	return err
}
