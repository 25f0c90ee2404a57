package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/token"
)

// maxSlots bounds --seed-count and the offerings together: what one process is
// built and measured for.
const maxSlots = 1_000_000

// maxAPIRate bounds --api-rate and --api-burst, which mean nothing above it.
const maxAPIRate = 10_000

var (
	// providerName must fit into tags and DNS labels.
	providerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	// zoneName is what the SDK accepts as a zone. Zones are not looked up in its
	// list, which lags behind the zones that open.
	zoneName = regexp.MustCompile(`^[a-z]{2}-[a-z]{3,7}-[0-9]{1,2}$`)
	// The forms without which the SDK makes no client.
	accessKeyForm = regexp.MustCompile(`^SCW[A-Z0-9]{17}$`)
	uuidForm      = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// Validate judges the configuration and reports every fault at once. It reads
// the files it needs to judge, and touches nothing else.
func (c *Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	address := func(flag, v string) {
		if _, _, err := net.SplitHostPort(v); err != nil {
			fault("--%s: %q is not host:port, such as :9000 or 127.0.0.1:9000", flag, v)
		}
	}
	address("addr", c.Addr)
	address("bootstrap-addr", c.Bootstrap.Addr)
	if c.MetricsAddr != "" {
		address("metrics-addr", c.MetricsAddr)
	}
	switch n := len(c.AdminSocket); {
	case n > 0 && c.State == "":
		fault("--admin-socket: set without --state; it serves copies of the state file")
	case n > maxSocketPath:
		fault("--admin-socket: the path has %d bytes, the limit is %d", n, maxSocketPath)
	}
	if !providerName.MatchString(c.Provider) {
		fault("--provider: %q: want 1 to 40 of a-z, 0-9 and -, neither first nor last a -", c.Provider)
	}
	if !zoneName.MatchString(c.Zone) {
		fault("--zone: %q is not a zone, such as fr-par-1", c.Zone)
	}
	c.oneOf(&errs, "substrate", c.Substrate, SubstrateInstances, SubstrateElasticMetal)
	c.oneOf(&errs, "scaleway-backend", c.Backend, backendReal, backendFake, backendAuto)
	c.oneOf(&errs, "fake-hosts", c.FakeHosts, string(host.InProc), string(host.Process), string(host.None))
	if c.UseFake && c.Backend == backendReal {
		fault("--use-fake-backend contradicts --scaleway-backend=scaleway")
	}
	if c.SeedCount < 1 || c.SeedCount > maxSlots {
		fault("--seed-count: %d, want 1 to %d", c.SeedCount, maxSlots)
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
	if !(c.APIRate > 0) || c.APIRate > maxAPIRate {
		fault("--api-rate: %v, want above 0, and %d at most", c.APIRate, maxAPIRate)
	}
	if c.APIBurst < 1 || c.APIBurst > maxAPIRate {
		fault("--api-burst: %d, want 1 to %d", c.APIBurst, maxAPIRate)
	}
	if c.Image == "" {
		fault("--image: missing")
	}
	if c.Substrate == SubstrateElasticMetal {
		errs = append(errs, c.validateMetal())
	} else if c.SSHKeys != "" {
		fault("--ssh-keys: only with --substrate=%s; Instances get the project's keys from Scaleway", SubstrateElasticMetal)
	}
	if !(c.EURUSD > 0) || math.IsInf(c.EURUSD, 0) {
		fault("--eur-usd: %v, want a finite number above 0", c.EURUSD)
	}
	if !(c.FakeScale >= 0) || c.FakeScale > 10 {
		fault("--fake-scale: %v, want 0 to 10", c.FakeScale)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"price-refresh", c.PriceRefresh, time.Minute}, {"reconcile-interval", c.ReconcileInterval, time.Second},
		{"poll-interval", c.PollInterval, 10 * time.Millisecond}, {"settle-window", c.SettleWindow, time.Second},
		{"create-timeout", c.CreateTimeout, time.Second}, {"configure-timeout", c.ConfigureTimeout, time.Second},
		{"drain-timeout", c.DrainTimeout, time.Second}, {"delete-timeout", c.DeleteTimeout, time.Second},
		{"failed-retention", c.FailedRetention, 0}, {"type-pause", c.TypePause, 0}, {"shutdown-timeout", c.ShutdownTimeout, time.Second},
	} {
		if d.value < d.least {
			fault("--%s: %s, want %s or more", d.flag, d.value, d.least)
		}
	}
	if _, err := telemetry.NewLogger(io.Discard, c.LogFormat, c.LogLevel); err != nil {
		fault("--log-format, --log-level: %w", err)
	}
	if c.Offerings != "" {
		if _, err := c.offerings(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.validateCredentials(), c.validateTLS(), c.validateBootstrap())
	return errors.Join(errs...)
}

func (c *Config) oneOf(errs *[]error, flag, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	*errs = append(*errs, fmt.Errorf("--%s: %q is unknown, want one of %q", flag, value, allowed))
}

func (c *Config) validateMetal() error {
	var errs []error
	for _, id := range c.sshKeys() {
		if !uuidForm.MatchString(id) {
			errs = append(errs, fmt.Errorf("--ssh-keys: %q is not the id of an IAM SSH key, a UUID", id))
		}
	}
	if c.NoPublicIP {
		errs = append(errs, fmt.Errorf("--no-public-ip: not with --substrate=%s, whose servers come with an address", SubstrateElasticMetal))
	}
	return errors.Join(errs...)
}

// sshKeys are the ids in --ssh-keys.
func (c *Config) sshKeys() []string {
	return strings.FieldsFunc(c.SSHKeys, func(r rune) bool { return r == ',' || r == ' ' })
}

// validateCredentials: without credentials and without the fake there is
// nothing to provide, and the fake is never chosen in silence.
func (c *Config) validateCredentials() error {
	if c.UseFake {
		return nil
	}
	var errs []error
	for _, k := range []struct {
		flag, variable, value string
		form                  *regexp.Regexp
		want                  string
	}{
		{"access-key", "SCW_ACCESS_KEY", c.AccessKey, accessKeyForm, "SCW and 17 more of A-Z and 0-9"},
		{"secret-key", "SCW_SECRET_KEY", c.SecretKey, uuidForm, "a UUID"},
		{"project-id", "SCW_DEFAULT_PROJECT_ID", c.ProjectID, uuidForm, "a UUID"},
	} {
		switch {
		case c.unread[k.flag]: // said already, and why
		case k.value == "":
			errs = append(errs, fmt.Errorf("--%s: missing; set %s (or %s_FILE), or use --use-fake-backend for a trial without Scaleway", k.flag, k.variable, k.variable))
		case !k.form.MatchString(k.value):
			// None is quoted: a secret may have been put where another belongs.
			errs = append(errs, fmt.Errorf("--%s (%s): %d characters of another form; want %s", k.flag, k.variable, utf8.RuneCountInString(k.value), k.want))
		}
	}
	if c.APIURL != "" && !c.unread["api-url"] {
		switch u, err := url.Parse(c.APIURL); {
		case strings.Contains(c.APIURL, "@"): // not quoted: what is before it is a password
			errs = append(errs, errors.New("--api-url (SCW_API_URL): has a user in it; the account is given by --access-key and --secret-key"))
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
			errs = append(errs, fmt.Errorf("--api-url (SCW_API_URL): %q is not an https URL with a host", c.APIURL))
		}
	}
	if len(errs) == 0 && len(c.unread) == 0 && zoneName.MatchString(c.Zone) {
		// Whatever else the client may not like; it makes no call.
		if _, err := scaleway.NewClient(c.credentials()); err != nil {
			errs = append(errs, err)
		}
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
		errs = append(errs, errors.New("--tls-reload: there are no certificate files to follow; set --tls-cert and --tls-key, or --bootstrap-tls-cert and --bootstrap-tls-key"))
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
	switch u, err := url.Parse(b.Endpoint); {
	case b.Endpoint == "" && c.UseFake && b.TLSCert == "":
	case b.Endpoint == "":
		fault("--bootstrap-endpoint: missing; agents dial it, such as https://provider.example:9443")
	case err != nil || u.Scheme != "https" || u.Host == "":
		fault("--bootstrap-endpoint: %q is not an https URL with a host", b.Endpoint)
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
	if b.Secret != "" {
		if _, err := token.NewSecret([]byte(b.Secret)); err != nil {
			fault("--bootstrap-secret: %w", err)
		}
	} else if !c.UseFake && !b.AllowRandomSecret && !c.unread["bootstrap-secret"] {
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
	if params.Endpoint == "" || params.CAPEM == "" {
		return nil // their faults are reported by their own checks
	}
	if err := cloudinit.Check(params); err != nil {
		return err
	}
	return nil
}

// checkStatePlace judges where the state file is or will be. Its folder must be
// writable even if it is there: an upgrade puts a copy beside it. A start does
// not ask this but finds out by opening the file: a volume that is not mounted
// yet is worth another start, and a configuration that cannot be used is not.
func checkStatePlace(path string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case err != nil:
		return fmt.Errorf("--state: %s: its folder: %w; make it, for the provider's user", path, err)
	case !info.IsDir():
		return fmt.Errorf("--state: %s: %s is not a folder", path, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("--state: %s: its folder is not writable for this user: %w", path, err)
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist): // it will be made
	case err != nil:
		return fmt.Errorf("--state: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("--state: %s: is not a regular file", path)
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
