package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
	"bigfleet-providers/shared/endpoint"
	"bigfleet-providers/shared/token"
)

// providerName must fit into tags and DNS labels.
var providerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Validate judges the configuration and reports every fault at once. It reads
// the files it needs to judge, and touches nothing else.
func (c *Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	errs = append(errs, c.validateListeners())
	switch n := len(c.AdminSocket); {
	case n > 0 && c.State == "":
		fault("--admin-socket: set without --state; it serves copies of the state file")
	case n > maxSocketPath:
		fault("--admin-socket: the path has %d bytes, the limit is %d", n, maxSocketPath)
	}
	if !providerName.MatchString(c.Provider) && !c.Unread("provider") {
		fault("--provider: %q: want 1 to 40 of a-z, 0-9 and -, neither first nor last a -", c.Provider)
	}
	if c.SeedCount < 1 || c.SeedCount > offering.MaxSlots {
		fault("--seed-count: %d, want 1 to %d", c.SeedCount, offering.MaxSlots)
	}
	if c.MaxParallelCreates < 1 {
		fault("--max-parallel-creates: %d, want 1 or more", c.MaxParallelCreates)
	}
	if c.RemovalCap < 0 {
		fault("--removal-cap: %d, want 0 or more", c.RemovalCap)
	}
	if c.TypePauseMax < c.TypePause {
		fault("--type-pause-max: %s is shorter than --type-pause, %s", c.TypePauseMax, c.TypePause)
	}
	if !(c.EURUSD > 0) || math.IsInf(c.EURUSD, 0) {
		fault("--eur-usd: %v, want a finite number above 0", c.EURUSD)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"price-refresh", c.PriceRefresh, time.Minute}, {"reconcile-interval", c.ReconcileInterval, time.Second},
		{"create-timeout", c.CreateTimeout, time.Second}, {"configure-timeout", c.ConfigureTimeout, time.Second},
		{"drain-timeout", c.DrainTimeout, time.Second}, {"delete-timeout", c.DeleteTimeout, time.Second},
		{"reconnect-window", c.ReconnectWindow, 0}, {"failed-retention", c.FailedRetention, 0}, {"type-pause", c.TypePause, 0}, {"shutdown-timeout", c.ShutdownTimeout, time.Second},
	} {
		if d.value < d.least {
			fault("--%s: %s, want %s or more", d.flag, d.value, d.least)
		}
	}
	if _, err := telemetry.NewLogger(io.Discard, c.LogFormat, c.LogLevel); err != nil {
		errs = append(errs, err)
	}
	if c.Offerings != "" {
		if _, err := c.offerings(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.settings.Validate(c), c.validateTLS(), tracing.Check(os.LookupEnv))
	if !c.vendor.Delivers {
		errs = append(errs, c.validateBootstrap())
	}
	return errors.Join(errs...)
}

// validateListeners judges where the ports listen. Two of them on one would have
// the start fail.
func (c *Config) validateListeners() error {
	var errs []error
	taken := map[string]string{} // the flag by its address
	judge := func(flag, v string, free bool) {
		if c.Unread(flag) {
			return
		}
		if err := endpoint.Listener(v); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			return
		}
		if _, port, _ := net.SplitHostPort(v); free || strings.Trim(port, "0") == "" {
			return
		}
		if other := taken[v]; other != "" {
			errs = append(errs, fmt.Errorf("--%s: %s is the address of --%s, too; name another", flag, v, other))
		}
		taken[v] = flag
	}
	judge("addr", c.Addr, false)
	if !c.vendor.Delivers {
		judge("bootstrap-addr", c.Bootstrap.Addr, c.UseFake && !c.Given("bootstrap-addr"))
	}
	if c.MetricsAddr != "" {
		judge("metrics-addr", c.MetricsAddr, c.UseFake && !c.Given("metrics-addr"))
	}
	return errors.Join(errs...)
}

func (c *Config) validateTLS() error {
	var errs []error
	switch {
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		errs = append(errs, errors.New("--tls-cert and --tls-key: only one is set; they are needed together"))
	case c.TLS.Cert == "" && c.TLS.CA != "":
		errs = append(errs, errors.New("--tls-ca: set without --tls-cert and --tls-key; a client CA needs a server certificate"))
	default:
		if _, _, err := c.TLS.open(); err != nil {
			errs = append(errs, err)
		}
	}
	if c.TLSReload && c.TLS.Cert == "" && c.Bootstrap.TLSCert == "" {
		errs = append(errs, errors.New("--tls-reload: there are no certificate files to follow; set --tls-cert and --tls-key"+c.withChannel(", or --bootstrap-tls-cert and --bootstrap-tls-key", "")))
	}
	if c.RequireShardIdentity && c.TLS.CA == "" {
		errs = append(errs, errors.New("--require-shard-identity: needs mTLS (--tls-cert, --tls-key, --tls-ca): without client certificates nobody could be identified"))
	}
	return errors.Join(errs...)
}

func (c *Config) validateBootstrap() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	b := c.Bootstrap
	if (b.TLSCert == "") != (b.TLSKey == "") {
		fault("--bootstrap-tls-cert and --bootstrap-tls-key: only one is set; they are needed together")
	} else if b.TLSCert == "" && !c.UseFake {
		fault("--bootstrap-tls-cert and --bootstrap-tls-key: missing; the channel carries secrets and is always TLS")
	}
	switch err := endpoint.Check(b.Endpoint, "https"); {
	case b.Endpoint == "" && c.UseFake && b.TLSCert == "":
	case b.Endpoint == "":
		fault("--bootstrap-endpoint: missing; agents dial it, such as https://provider.example:9443")
	case err != nil:
		fault("--bootstrap-endpoint: %w", err)
	case b.TLSCert == "" && c.UseFake:
		fault("--bootstrap-endpoint: set without --bootstrap-tls-cert and --bootstrap-tls-key; the fake backend's own certificate fits its own endpoint only")
	}
	var caPEM string
	if b.TLSCert != "" && b.TLSKey != "" {
		live, err := certificates.Open(b.source())
		if err != nil {
			errs = append(errs, err)
		} else {
			caPEM = live.Current().Bundle.PEM
		}
	} else if b.CA != "" {
		fault("--bootstrap-ca: set without --bootstrap-tls-cert and --bootstrap-tls-key, which it is for")
	}
	if b.CAOptional && b.CA == "" && !c.Unread("bootstrap-ca") {
		fault("--bootstrap-ca-optional: set without --bootstrap-ca, which it is for")
	}
	if b.Secret != "" {
		if _, err := token.NewSecret([]byte(b.Secret)); err != nil {
			fault("--bootstrap-secret: %w", err)
		}
	} else if !c.UseFake && !b.AllowRandomSecret && !c.Unread("bootstrap-secret") {
		fault("--bootstrap-secret: missing; set BIGFLEET_BOOTSTRAP_SECRET (make one with: openssl rand -hex 32), or --allow-random-secret for a trial")
	}
	errs = append(errs, c.validatePreviousSecret(), c.validateUserData(caPEM))
	return errors.Join(errs...)
}

func (c *Config) validatePreviousSecret() error {
	b := c.Bootstrap
	if b.SecretPrevious == "" {
		return nil
	}
	previous, err := token.NewSecret([]byte(b.SecretPrevious))
	if err != nil {
		return fmt.Errorf("--bootstrap-secret-previous: %w", err)
	}
	secret, err := token.NewSecret([]byte(b.Secret))
	switch {
	case b.Secret == "":
		return errors.New("--bootstrap-secret-previous: set without --bootstrap-secret; the new secret belongs there")
	case err == nil && bytes.Equal(secret.Bytes(), previous.Bytes()):
		return errors.New("--bootstrap-secret-previous: the same as --bootstrap-secret; there it needs the new one")
	}
	return nil
}

// validateUserData renders the largest user data there can be.
func (c *Config) validateUserData(caPEM string) error {
	params, err := c.wholeParams(caPEM)
	if err != nil {
		return err
	}
	if _, fault := endpoint.URL(params.Endpoint, "https"); fault != nil || params.CAPEM == "" {
		return nil //nolint:nilerr // their faults are reported by their own checks
	}
	if err := cloudinit.Check(params); err != nil {
		return err
	}
	return nil
}

// readFile reads a file that a flag names; "" reads nothing.
func readFile(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return content, nil
}
