package provider

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The values of --substrate.
const (
	SubstrateInstances    = "instances"
	SubstrateElasticMetal = "elastic-metal"
)

// The values of --scaleway-backend.
const (
	backendReal = "scaleway"
	backendFake = "fake"
	backendAuto = "auto"
)

// Config is everything an operator can set. Load reads it, Validate judges it.
type Config struct {
	Addr      string
	Provider  string
	Zone      string
	Substrate string
	Backend   string
	UseFake   bool
	SeedCount int
	Offerings string
	State     string
	// AdminSocket is the path of the Unix socket that serves backups; "" for none.
	AdminSocket string

	AccessKey    string
	SecretKey    string
	ProjectID    string
	APIURL       string
	Image        string
	SSHKeys      string
	NoPublicIP   bool
	BaseUserData string

	PollInterval time.Duration
	SettleWindow time.Duration
	APIRate      float64
	APIBurst     int

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
	FailedRetention  time.Duration
	ShutdownTimeout  time.Duration

	FakeHosts string
	FakeScale float64
	FakeAgent string

	LogFormat string
	LogLevel  string

	// Live has check-config ask the cloud, too.
	Live bool

	set    map[string]bool // flags that the operator gave
	unread map[string]bool // flags whose variable could not be read
}

// BootstrapConfig is the bootstrap channel's part.
type BootstrapConfig struct {
	Addr              string
	Endpoint          string
	TLSCert           string
	TLSKey            string
	CA                string
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

// environment lists the flags that fall back to a variable, or to the content
// of the file that the variable with _FILE behind its name points to.
var environment = []struct {
	flag, variable string
	field          func(*Config) *string
}{
	{"access-key", "SCW_ACCESS_KEY", func(c *Config) *string { return &c.AccessKey }},
	{"secret-key", "SCW_SECRET_KEY", func(c *Config) *string { return &c.SecretKey }},
	{"project-id", "SCW_DEFAULT_PROJECT_ID", func(c *Config) *string { return &c.ProjectID }},
	{"zone", "SCW_DEFAULT_ZONE", func(c *Config) *string { return &c.Zone }},
	{"api-url", "SCW_API_URL", func(c *Config) *string { return &c.APIURL }},
	{"bootstrap-secret", "BIGFLEET_BOOTSTRAP_SECRET", func(c *Config) *string { return &c.Bootstrap.Secret }},
	{"bootstrap-secret-previous", "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS", func(c *Config) *string { return &c.Bootstrap.SecretPrevious }},
}

// defaultZone is used when neither --zone nor SCW_DEFAULT_ZONE is set.
const defaultZone = "fr-par-1"

// What elastic-metal has other defaults for. An install takes minutes, and has
// been seen to take an hour.
const (
	defaultSystem      = "Ubuntu 24.04"
	metalCreateTimeout = 2 * time.Hour
	metalPoll          = 15 * time.Second
)

// metalDefaults replaces what the operator left to the program.
func (c *Config) metalDefaults() {
	if c.Substrate != SubstrateElasticMetal {
		return
	}
	if !c.set["image"] {
		c.Image = defaultSystem
	}
	if !c.set["create-timeout"] {
		c.CreateTimeout = metalCreateTimeout
	}
	if !c.set["poll-interval"] {
		c.PollInterval = metalPoll
	}
}

// Load reads the flags, then the environment for what the flags left out. It
// reports every fault at once and judges nothing; Validate does. With faults in
// the environment it returns what it could read as well, so that Validate can
// add its own; a command line that cannot be read ends it. lookup is
// os.LookupEnv.
func Load(args []string, lookup func(string) (string, bool)) (*Config, error) {
	c := &Config{set: map[string]bool{}, unread: map[string]bool{}}
	f := c.flags()
	f.Usage = func() {} // Main prints its own, and pflag would print another
	if err := f.Parse(args); err != nil {
		return nil, withForm(err)
	}
	f.Visit(func(fl *pflag.Flag) { c.set[fl.Name] = true })
	var errs []error
	if rest := f.Args(); len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	for _, e := range environment {
		if c.set[e.flag] {
			continue
		}
		value, err := fromEnvironment(e.variable, lookup)
		if err != nil {
			errs = append(errs, err)
			c.unread[e.flag] = true
		}
		*e.field(c) = value
	}
	if c.Zone == "" {
		c.Zone = defaultZone
	}
	if c.Backend == backendFake {
		c.UseFake = true
	}
	c.metalDefaults()
	return c, errors.Join(errs...)
}

// withForm adds to pflag's complaint of a value how such values are written.
func withForm(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	form := map[string]string{
		"duration": "a number with its unit, such as 90s, 15m or 1h30m",
		"bool":     "true or false, after an equals sign",
		"int":      "a whole number",
		"float64":  "a number, such as 0.5",
	}[invalid.GetFlag().Value.Type()]
	if form == "" {
		return err
	}
	return fmt.Errorf("--%s: %q; want %s", invalid.GetFlag().Name, invalid.GetValue(), form)
}

// fromEnvironment reads NAME, or the file that NAME_FILE names. Both at once
// are a fault: one of them would be ignored in silence.
func fromEnvironment(name string, lookup func(string) (string, bool)) (string, error) {
	value, hasValue := lookup(name)
	path, hasPath := lookup(name + "_FILE")
	hasValue, hasPath = hasValue && value != "", hasPath && path != ""
	switch {
	case hasValue && hasPath:
		return "", fmt.Errorf("%s and %s_FILE are both set; unset one", name, name)
	case hasPath:
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%s_FILE: %w", name, err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	default:
		return value, nil
	}
}
