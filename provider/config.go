package provider

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/shared/flags"
)

// Config is what an operator can set for whichever vendor; what is one vendor's is in
// its Settings. Load reads both, Validate judges them.
type Config struct {
	Addr      string
	Provider  string
	UseFake   bool
	SeedCount int
	Offerings string
	State     string
	// AdminSocket is the path of the operator's Unix socket, see serveAdmin; "" for none.
	AdminSocket string

	BaseUserData string

	EURUSD            float64
	PriceRefresh      time.Duration
	ReconcileInterval time.Duration
	ReconcileDryRun   bool
	RemovalCap        int
	TypePause         time.Duration
	TypePauseMax      time.Duration

	Bootstrap BootstrapConfig
	TLS       TLSConfig

	// TLSReload follows the files of both listeners.
	TLSReload bool

	RequireShardIdentity bool
	RequireFence         bool
	Reflection           bool
	MetricsAddr          string

	MaxParallelCreates int

	CreateTimeout    time.Duration
	ConfigureTimeout time.Duration
	DrainTimeout     time.Duration
	DeleteTimeout    time.Duration
	ReconnectWindow  time.Duration
	FailedRetention  time.Duration
	ShutdownTimeout  time.Duration

	LogFormat string
	LogLevel  string

	// Live has check-config ask the cloud, too.
	Live bool

	vendor   Vendor
	settings Settings
	flags    Flags           // what settings declared
	set      map[string]bool // flags that the operator gave
	unread   map[string]bool // flags that Load found a fault with
}

// newConfig is what one command line for the vendor's program is read into.
func newConfig(v Vendor) *Config {
	c := &Config{vendor: v, settings: v.Settings(), set: map[string]bool{}, unread: map[string]bool{}}
	c.flags = c.settings.Flags()
	return c
}

// Given says whether the flag was on the command line.
func (c *Config) Given(flag string) bool { return c.set[flag] }

// Unread says whether the flag or its variable could not be read, or was given and
// empty, which Load reported.
func (c *Config) Unread(flag string) bool { return c.unread[flag] }

// BootstrapConfig is the bootstrap channel's part.
type BootstrapConfig struct {
	Addr              string
	Endpoint          string
	TLSCert           string
	TLSKey            string
	CA                string
	CAOptional        bool
	Secret            string
	SecretPrevious    string
	AllowRandomSecret bool
	AgentInstall      string
	AgentPackages     string
	APTURI            string
	APTSuite          string
	APTComponent      string
	APTKey            string
}

// TLSConfig is the gRPC port's part.
type TLSConfig struct {
	Cert string
	Key  string
	CA   string
}

// environment lists the flags that fall back to a variable.
func (c *Config) environment() []Variable {
	if c.vendor.Delivers {
		return c.flags.Environment
	}
	return slices.Concat(c.flags.Environment, []Variable{
		{"bootstrap-secret", "BIGFLEET_BOOTSTRAP_SECRET", &c.Bootstrap.Secret},
		{"bootstrap-secret-previous", "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS", &c.Bootstrap.SecretPrevious},
	})
}

// Load reads the flags of the vendor's program, then the environment for what
// the flags left out. It reports every fault at once and judges nothing; Validate
// does. With faults it returns what it could read as well, so that Validate can
// add its own. A call for help is pflag.ErrHelp alone. lookup is os.LookupEnv.
func Load(v Vendor, args []string, lookup func(string) (string, bool)) (*Config, error) {
	c := newConfig(v)
	f := c.flagSet()
	f.Usage = func() {} // Main prints its own, and pflag would print another
	errs := parse(f, args)
	if slices.Contains(errs, pflag.ErrHelp) {
		return nil, pflag.ErrHelp
	}
	f.Visit(func(fl *pflag.Flag) { c.set[fl.Name] = true })
	for _, fault := range flags.Empty(f) {
		errs = append(errs, fault)
		c.unread[fault.Flag] = true
	}
	for _, e := range c.environment() {
		if c.unread[e.Flag] {
			continue
		}
		source := "--" + e.Flag
		var err error
		if !c.set[e.Flag] {
			source, *e.Value, err = fromEnvironment(e.Name, lookup)
		}
		if err == nil {
			*e.Value, err = withoutLineBreak(source, *e.Value)
		}
		if err != nil {
			if source != "--"+e.Flag {
				err = fmt.Errorf("--%s: %w", e.Flag, err)
			}
			errs = append(errs, err)
			c.unread[e.Flag] = true
		}
	}
	c.settings.Complete(c)
	return c, errors.Join(errs...)
}
