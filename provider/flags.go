package provider

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/fakecloud/host"
)

// flagGroup is the flags of one subject, as --help and docs/configuration.md show
// them.
type flagGroup struct {
	title string
	note  string // what holds for all of them; "" for nothing
	flags *pflag.FlagSet
}

// flags declares every flag with its default.
func (c *Config) flags() *pflag.FlagSet {
	all := pflag.NewFlagSet("scaleway", pflag.ContinueOnError)
	all.SortFlags = false
	for _, g := range c.flagGroups() {
		all.AddFlagSet(g.flags)
	}
	return all
}

// flagGroups declares them by subject. The usage of a flag is the whole of what
// the documentation says of it, but for links: `make generate` writes it there.
func (c *Config) flagGroups() []flagGroup {
	groups := []flagGroup{
		{title: "Identity and scope", flags: c.identityFlags()},
		{title: "Scaleway", flags: c.cloudFlags()},
		{title: "Bootstrap channel", flags: c.bootstrapFlags()},
		{title: "gRPC port, metrics, log", flags: c.portFlags()},
		{
			title: "Times",
			note: "A deadline is stored as an absolute time when the call is accepted, and holds over restarts.\n" +
				"Past it the machine is FAILED. Each is 1 second or more, unless said otherwise.",
			flags: c.timeFlags(),
		},
		{title: "Fake backend", note: "These have no effect without --use-fake-backend.", flags: c.fakeFlags()},
		{title: "check-config", flags: c.checkFlags()},
	}
	for _, g := range groups {
		for _, e := range environment {
			if f := g.flags.Lookup(e.flag); f != nil {
				f.Usage += " (env " + e.variable + ")"
			}
		}
	}
	return groups
}

func newFlagGroup() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	return f
}

func (c *Config) identityFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.StringVar(&c.Provider, "provider", "scaleway", "this provider's `name`: in HostRef, in machine ids and in the owner tag of its servers; 1 to 40 of a-z, 0-9 and -; two processes in one project must not share it")
	f.StringVar(&c.Zone, "zone", "", "the one Scaleway `zone` that this process serves, "+defaultZone+" if neither flag nor variable is given; run one process a zone")
	f.StringVar(&c.Substrate, "substrate", SubstrateInstances, "what to sell, a `substrate`: instances, or elastic-metal for dedicated servers")
	f.StringVar(&c.Backend, "scaleway-backend", backendAuto, "which `backend`: scaleway, fake or auto; auto is scaleway and needs credentials, and never becomes fake by itself")
	f.BoolVar(&c.UseFake, "use-fake-backend", false, "run a fake Scaleway inside this process, on loopback: for trials and tests, makes no real server; the same as --scaleway-backend=fake, and refused with --scaleway-backend=scaleway")
	f.StringVar(&c.Offerings, "offerings", "", "`file` with the offerings (JSON array); without it a built-in mix shares --seed-count")
	f.IntVar(&c.SeedCount, "seed-count", 16, fmt.Sprintf("`number` of slots of the built-in mix, half DEV1-S and half GP1-XS; 1 to %d", maxSlots))
	f.StringVar(&c.State, "state", "", "state `file`; its folder must exist and be writable. It belongs to the --provider, --zone, --substrate and --project-id that it was first used with, and is refused with others. Without it everything is forgotten at exit, which only suits trials")
	f.StringVar(&c.AdminSocket, "admin-socket", "", fmt.Sprintf("`path` of a Unix socket on which root and this process's user can fetch copies of the state file, and see hosts and operations; needs --state. Mode 0600; its folder must belong to this process's user and be writable by it alone, and is made if only it is missing; %d bytes at most", maxSocketPath))
	return f
}

func (c *Config) cloudFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.StringVar(&c.AccessKey, "access-key", "", "Scaleway access `key`; required without the fake")
	f.StringVar(&c.SecretKey, "secret-key", "", "Scaleway secret `key`; required without the fake, and better not on the command line, where others see it")
	f.StringVar(&c.ProjectID, "project-id", "", "`id` of the Scaleway project that servers are made in; required without the fake")
	f.StringVar(&c.APIURL, "api-url", "", "base `URL` of the Scaleway API; none is the public API")
	f.StringVar(&c.Image, "image", "ubuntu_jammy", "`image` of new servers: a marketplace label or a UUID; of elastic-metal a system's name and version, or id, by default "+defaultSystem)
	f.StringVar(&c.SSHKeys, "ssh-keys", "", "`ids` of IAM SSH keys, comma-separated, that installs of elastic-metal put on servers; none is all that are enabled in the project. Refused with instances, which get those from Scaleway")
	f.BoolVar(&c.NoPublicIP, "no-public-ip", false, "ask for servers without a public IPv4; they need another way to the channel and to their packages, and their first boot is minutes slower")
	f.StringVar(&c.BaseUserData, "base-user-data", "", "`file` with your own cloud-init user data, merged with ours")
	f.DurationVar(&c.PollInterval, "poll-interval", 5*time.Second, "how often a server is read while something is awaited of it; of elastic-metal every "+metalPoll.String()+" unless given. 10ms or more; not with the fake backend, which has times of its own")
	f.DurationVar(&c.SettleWindow, "settle-window", 150*time.Second, "how long after an order without an answer its server may still turn up in the list; nothing else is ordered for the machine before, and a shorter one risks a second server. 1s or more; not with the fake backend")
	f.Float64Var(&c.APIRate, "api-rate", 10, fmt.Sprintf("`number` of API calls a second that this process may send in the long run, above 0 and %d at most; the fake backend is limited only if this is given", maxAPIRate))
	f.IntVar(&c.APIBurst, "api-burst", 20, fmt.Sprintf("`number` of API calls it may send at once after a quiet time, 1 to %d", maxAPIRate))
	f.Float64Var(&c.EURUSD, "eur-usd", 1.10, "`dollars` a euro, above 0: prices are listed in USD")
	f.DurationVar(&c.PriceRefresh, "price-refresh", 6*time.Hour, "how often types and prices, and the offerings file, are read again; 1m or more")
	f.DurationVar(&c.ReconcileInterval, "reconcile-interval", 2*time.Minute, "pause between two comparisons with the cloud's inventory; 1s or more")
	f.BoolVar(&c.ReconcileDryRun, "reconcile-dry-run", false, "let reconcile log what it would remove, and remove nothing")
	f.IntVar(&c.RemovalCap, "removal-cap", 5, "`number` of servers, volumes and addresses that no machine claims that one pass may remove; when there are more, it removes none. 0 or more")
	f.DurationVar(&c.TypePause, "type-pause", 30*time.Second, "how long a type is not ordered after Scaleway refused it for want of stock or quota; doubles with each refusal in a row, and the fake backend scales it")
	f.DurationVar(&c.TypePauseMax, "type-pause-max", 15*time.Minute, "the longest such pause; --type-pause or more")
	return f
}

func (c *Config) bootstrapFlags() *pflag.FlagSet {
	f := newFlagGroup()
	b := &c.Bootstrap
	f.StringVar(&b.Addr, "bootstrap-addr", ":9443", "`address` where the bootstrap channel (HTTPS) listens; with the fake backend and no certificate a free port on loopback unless given")
	f.StringVar(&b.Endpoint, "bootstrap-endpoint", "", "https `URL` under which agents reach the channel; required without the fake")
	f.StringVar(&b.TLSCert, "bootstrap-tls-cert", "", "PEM `file`: the channel's certificate, chain included; required without the fake. Refused when an agent could not verify it for the endpoint's host name with the CA that it pins")
	f.StringVar(&b.TLSKey, "bootstrap-tls-key", "", "PEM `file`: its key")
	f.StringVar(&b.CA, "bootstrap-ca", "", "PEM `file`: the only CA that agents trust; none is the channel's certificate itself")
	f.StringVar(&b.Secret, "bootstrap-secret", "", "`secret` from which each machine's token is derived; 32 bytes or more, one trailing line break is dropped. Required without the fake, unless --allow-random-secret is given")
	f.StringVar(&b.SecretPrevious, "bootstrap-secret-previous", "", "the `secret` before, whose tokens and sealed blobs still work while machines move to the new one")
	f.BoolVar(&b.AllowRandomSecret, "allow-random-secret", false, "start without a bootstrap secret and make one up; all tokens die with the process, so for trials only")
	f.StringVar(&b.AgentInstall, "agent-install", "channel", "`how` new servers get the agent: channel, apt or image; with the fake backend image, unless given")
	f.StringVar(&b.AgentPackages, "agent-packages", "", "`folder` with one bigfleet-agent_*_ARCH.deb for each architecture (amd64, arm64), served to new servers; required for --agent-install=channel")
	f.StringVar(&b.APTURI, "agent-apt-uri", "", "`URL` of the APT repository; required for --agent-install=apt")
	f.StringVar(&b.APTSuite, "agent-apt-suite", "stable", "`suite` of the APT repository")
	f.StringVar(&b.APTComponent, "agent-apt-component", "main", "`component` of the APT repository")
	f.StringVar(&b.APTKey, "agent-apt-key", "", "`file` with the repository's public key, ASCII-armoured; required for --agent-install=apt")
	return f
}

func (c *Config) portFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.StringVar(&c.Addr, "addr", ":9000", "`address` of the gRPC port: CapacityProvider, health and reflection")
	f.StringVar(&c.TLS.Cert, "tls-cert", "", "PEM `file`: the gRPC port's certificate; none means plaintext")
	f.StringVar(&c.TLS.Key, "tls-key", "", "PEM `file`: its key; one of the two alone is refused")
	f.StringVar(&c.TLS.CA, "tls-ca", "", "PEM `file`: client certificates must chain to it (mTLS); refused without the two above")
	f.BoolVar(&c.TLSReload, "tls-reload", false, "follow replaced certificate files of the gRPC port and the bootstrap channel; what does not fit together is not taken")
	f.BoolVar(&c.RequireShardIdentity, "require-shard-identity", false, "refuse client certificates without a bigfleet:// identity; refused without mTLS")
	f.BoolVar(&c.RequireFence, "require-fence", false, "refuse mutating calls without a fencing token")
	f.BoolVar(&c.Reflection, "reflection", true, "serve gRPC reflection")
	f.StringVar(&c.MetricsAddr, "metrics-addr", ":9090", "`address` of /metrics, /healthz and /readyz, in plain HTTP; empty turns it off. With the fake backend a taken default gives way to a free port")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	f.StringVar(&c.LogLevel, "log-level", "info", "`level` of the log: debug, info, warn or error")
	return f
}

func (c *Config) timeFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.IntVar(&c.MaxParallelCreates, "max-parallel-creates", 256, "`number` of Creates under way at a time, from the order to the agent's first contact; later ones wait their turn, and their deadline runs")
	f.DurationVar(&c.CreateTimeout, "create-timeout", 30*time.Minute, "deadline of a Create, up to the agent's first contact; of elastic-metal "+metalCreateTimeout.String()+" unless given")
	f.DurationVar(&c.ConfigureTimeout, "configure-timeout", 15*time.Minute, "deadline of a Configure")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 15*time.Minute, "deadline of a Drain, on top of its grace period")
	f.DurationVar(&c.DeleteTimeout, "delete-timeout", 20*time.Minute, "deadline of a Delete")
	f.DurationVar(&c.FailedRetention, "failed-retention", 24*time.Hour, "how long the host of a machine that failed while bound is kept, since workloads may run there; may be 0")
	f.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 10*time.Second, "how long gRPC calls in flight may take at shutdown")
	return f
}

func (c *Config) fakeFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.StringVar(&c.FakeHosts, "fake-hosts", string(host.InProc), "`what` boots on a fake server: inproc, process or none (then no Create completes)")
	f.Float64Var(&c.FakeScale, "fake-scale", 0.01, "`factor` on the real API's delays, 0 to 10")
	f.StringVar(&c.FakeAgent, "fake-agent", "", "`path` of bigfleet-agent for --fake-hosts=process; none is the one beside this program")
	return f
}

func (c *Config) checkFlags() *pflag.FlagSet {
	f := newFlagGroup()
	f.BoolVar(&c.Live, "live", false, "also ask Scaleway, with calls that only read, whether account and offerings are usable; refused by serve")
	return f
}

// flagHelp is the flags as --help prints them.
func flagHelp() string {
	const columns = 100
	var b strings.Builder
	for _, g := range (&Config{}).flagGroups() {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for line := range strings.Lines(g.note) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
		b.WriteString(g.flags.FlagUsagesWrapped(columns))
	}
	return b.String()
}
