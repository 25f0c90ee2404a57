package provider

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/fakecloud/host"
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

// flags declares every flag with its default.
func (c *Config) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("scaleway", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&c.Addr, "addr", ":9000", "`address` of the gRPC port: CapacityProvider, health and reflection")
	f.StringVar(&c.Provider, "provider", "scaleway", "this provider's `name`: in HostRef, in machine ids and in the owner tag of its servers; one per process and project")
	f.StringVar(&c.Zone, "zone", "", "Scaleway `zone` this process serves (env SCW_DEFAULT_ZONE; default "+defaultZone+")")
	f.StringVar(&c.Substrate, "substrate", SubstrateInstances, "what to sell: `instances` or elastic-metal")
	f.StringVar(&c.Backend, "scaleway-backend", backendAuto, "scaleway, fake or `auto`: auto is scaleway and needs credentials; it never becomes fake by itself")
	f.BoolVar(&c.UseFake, "use-fake-backend", false, "run a fake Scaleway inside this process, on loopback: for trials and tests, makes no real server")
	f.StringVar(&c.Offerings, "offerings", "", "`file` with the offerings (JSON array); without it a built-in mix shares --seed-count")
	f.IntVar(&c.SeedCount, "seed-count", 16, "`number` of slots that the built-in offerings share")
	f.StringVar(&c.State, "state", "", "state `file`; without it everything is forgotten at exit, which only suits trials")
	f.StringVar(&c.AdminSocket, "admin-socket", "", "`path` of a Unix socket on which root and this process's user can fetch a copy of the state file; empty turns it off")

	f.StringVar(&c.AccessKey, "access-key", "", "Scaleway access `key` (env SCW_ACCESS_KEY, SCW_ACCESS_KEY_FILE)")
	f.StringVar(&c.SecretKey, "secret-key", "", "Scaleway secret `key`; better not on the command line, where others see it (env SCW_SECRET_KEY, SCW_SECRET_KEY_FILE)")
	f.StringVar(&c.ProjectID, "project-id", "", "Scaleway project `id` (env SCW_DEFAULT_PROJECT_ID)")
	f.StringVar(&c.APIURL, "api-url", "", "base `URL` of the Scaleway API (env SCW_API_URL; default: the public API)")
	f.StringVar(&c.Image, "image", "ubuntu_jammy", "`image` of new servers: a marketplace label or a UUID; of elastic-metal a system's name and version, or id (default "+defaultSystem+")")
	f.StringVar(&c.SSHKeys, "ssh-keys", "", "`ids` of IAM SSH keys, comma-separated, that installs of elastic-metal put on servers (default: all of the project)")
	f.BoolVar(&c.NoPublicIP, "no-public-ip", false, "ask for servers without a public IPv4; their first boot is minutes slower")
	f.StringVar(&c.BaseUserData, "base-user-data", "", "`file` with your own cloud-init user data, merged with ours")

	f.StringVar(&c.Bootstrap.Addr, "bootstrap-addr", ":9443", "`address` of the bootstrap channel (HTTPS) that agents dial")
	f.StringVar(&c.Bootstrap.Endpoint, "bootstrap-endpoint", "", "https `URL` under which agents reach the channel; the certificate must match it")
	f.StringVar(&c.Bootstrap.TLSCert, "bootstrap-tls-cert", "", "PEM `file`: the channel's certificate")
	f.StringVar(&c.Bootstrap.TLSKey, "bootstrap-tls-key", "", "PEM `file`: its key")
	f.StringVar(&c.Bootstrap.CA, "bootstrap-ca", "", "PEM `file`: the CA that agents pin (default: the channel's certificate)")
	f.StringVar(&c.Bootstrap.Secret, "bootstrap-secret", "", "`secret` from which each machine's token is derived, 32 bytes or more (env BIGFLEET_BOOTSTRAP_SECRET, BIGFLEET_BOOTSTRAP_SECRET_FILE)")
	f.StringVar(&c.Bootstrap.SecretPrevious, "bootstrap-secret-previous", "", "the `secret` before, whose tokens and sealed blobs still work while machines move to the new one (env BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS, BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS_FILE)")
	f.BoolVar(&c.Bootstrap.AllowRandomSecret, "allow-random-secret", false, "start without a bootstrap secret and make one up; all tokens die with the process")
	f.StringVar(&c.Bootstrap.AgentInstall, "agent-install", "channel", "how new servers get the agent: `channel`, apt or image")
	f.StringVar(&c.Bootstrap.AgentPackages, "agent-packages", "", "`folder` with bigfleet-agent_*_ARCH.deb, served to new servers (--agent-install=channel)")
	f.StringVar(&c.Bootstrap.APTURI, "agent-apt-uri", "", "`URL` of the APT repository (--agent-install=apt)")
	f.StringVar(&c.Bootstrap.APTSuite, "agent-apt-suite", "stable", "`suite` of the APT repository")
	f.StringVar(&c.Bootstrap.APTComponent, "agent-apt-component", "main", "`component` of the APT repository")
	f.StringVar(&c.Bootstrap.APTKey, "agent-apt-key", "", "`file` with the repository's public key, ASCII-armoured")

	f.StringVar(&c.TLS.Cert, "tls-cert", "", "PEM `file`: the gRPC port's certificate; none means plaintext")
	f.StringVar(&c.TLS.Key, "tls-key", "", "PEM `file`: its key")
	f.StringVar(&c.TLS.CA, "tls-ca", "", "PEM `file`: client certificates must chain to it (mTLS)")
	f.BoolVar(&c.TLSReload, "tls-reload", false, "follow replaced certificate files of the gRPC port and the bootstrap channel; what does not fit together is not taken")
	f.BoolVar(&c.RequireShardIdentity, "require-shard-identity", false, "refuse client certificates without a bigfleet:// identity")
	f.BoolVar(&c.RequireFence, "require-fence", false, "refuse mutating calls without a fencing token")
	f.BoolVar(&c.Reflection, "reflection", true, "serve gRPC reflection")
	f.StringVar(&c.MetricsAddr, "metrics-addr", ":9090", "`address` of /metrics, /healthz and /readyz; empty turns it off")

	f.DurationVar(&c.PollInterval, "poll-interval", 5*time.Second, "how often a server is read while something is awaited of it (default of elastic-metal: "+metalPoll.String()+")")
	f.DurationVar(&c.SettleWindow, "settle-window", 150*time.Second, "how long after an order without an answer its server may still turn up; a shorter one risks a second server")

	f.Float64Var(&c.APIRate, "api-rate", 10, "`number` of API calls a second that this process may send in the long run; the fake backend is limited only if this is given")
	f.IntVar(&c.APIBurst, "api-burst", 20, "`number` of API calls it may send at once after a quiet time")

	f.Float64Var(&c.EURUSD, "eur-usd", 1.10, "`dollars` a euro: prices are listed in USD")
	f.DurationVar(&c.PriceRefresh, "price-refresh", 6*time.Hour, "how often types and prices are read again")
	f.DurationVar(&c.ReconcileInterval, "reconcile-interval", 2*time.Minute, "how often the cloud's inventory is compared with the state")
	f.BoolVar(&c.ReconcileDryRun, "reconcile-dry-run", false, "let reconcile log what it would remove, and remove nothing")
	f.IntVar(&c.RemovalCap, "removal-cap", 5, "`number` of servers, volumes and addresses that no machine claims above which a reconcile pass removes none of them")
	f.DurationVar(&c.TypePause, "type-pause", 30*time.Second, "how long a type is not ordered after Scaleway refused it for want of stock or quota; doubles with each refusal in a row")
	f.DurationVar(&c.TypePauseMax, "type-pause-max", 15*time.Minute, "the longest such pause")
	f.IntVar(&c.MaxParallelCreates, "max-parallel-creates", 256, "`number` of Creates under way at a time, from the order to the agent's first contact; later ones wait, and their deadline runs")
	f.DurationVar(&c.CreateTimeout, "create-timeout", 30*time.Minute, "deadline of a Create, up to the agent's first contact (default of elastic-metal: "+metalCreateTimeout.String()+")")
	f.DurationVar(&c.ConfigureTimeout, "configure-timeout", 15*time.Minute, "deadline of a Configure")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 15*time.Minute, "deadline of a Drain, on top of its grace period")
	f.DurationVar(&c.DeleteTimeout, "delete-timeout", 20*time.Minute, "deadline of a Delete")
	f.DurationVar(&c.FailedRetention, "failed-retention", 24*time.Hour, "how long the host of a machine that failed while bound is kept")
	f.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 10*time.Second, "how long calls in flight may take at shutdown")

	f.StringVar(&c.FakeHosts, "fake-hosts", string(host.InProc), "what the fake backend boots: `inproc`, process or none (then no Create completes)")
	f.Float64Var(&c.FakeScale, "fake-scale", 0.01, "`factor` on the real API's delays in the fake backend")
	f.StringVar(&c.FakeAgent, "fake-agent", "", "`path` of bigfleet-agent for --fake-hosts=process (default: beside this program)")

	f.StringVar(&c.LogFormat, "log-format", "text", "`text` or json")
	f.StringVar(&c.LogLevel, "log-level", "info", "debug, `info`, warn or error")

	f.BoolVar(&c.Live, "live", false, "with check-config: also ask Scaleway, with calls that only read, whether account and offerings are usable")
	return f
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
