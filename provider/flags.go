package provider

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/shared/flags"
)

// FlagGroup is the flags of one subject, as --help and the docs show them.
type FlagGroup struct {
	Title string
	Note  string // what holds for all of them; "" for nothing
	Flags *pflag.FlagSet
}

// flagSet declares every flag with its default.
func (c *Config) flagSet() *pflag.FlagSet {
	all := NewFlagSet()
	all.Init(c.vendor.Name, pflag.ContinueOnError)
	for _, g := range c.flagGroups() {
		all.AddFlagSet(g.Flags)
	}
	return all
}

// FlagGroups are all flags of the vendor's program by subject, for its docs. What
// they would set is nowhere.
func FlagGroups(v Vendor) []FlagGroup { return newConfig(v).flagGroups() }

// flagGroups declares them by subject. The usage of a flag is the whole of what
// the documentation says of it, but for links: `make generate` writes it there.
func (c *Config) flagGroups() []FlagGroup {
	groups := []FlagGroup{
		{Title: "Identity and scope", Flags: c.identityFlags()},
		{Title: c.vendor.Title, Flags: c.cloudFlags()},
	}
	if !c.vendor.Delivers {
		groups = append(groups, FlagGroup{Title: "Bootstrap channel", Flags: c.bootstrapFlags()})
	}
	groups = append(groups,
		FlagGroup{Title: "gRPC port, metrics, log", Flags: c.portFlags()},
		FlagGroup{
			Title: "Times",
			Note: "A deadline is stored as an absolute time when the call is accepted, and holds over restarts,\n" +
				"but for --reconnect-window.\n" +
				"Past it the machine is FAILED. Each is 1 second or more, unless said otherwise.",
			Flags: c.timeFlags(),
		},
	)
	if c.vendor.Fakes && c.flags.Fake != nil {
		groups = append(groups, FlagGroup{Title: "Fake backend", Note: "These have no effect without --use-fake-backend.", Flags: c.flags.Fake})
	}
	groups = append(groups, FlagGroup{Title: checkCommand, Flags: c.checkFlags()})
	for _, g := range groups {
		for _, e := range c.environment() {
			if f := g.Flags.Lookup(e.Flag); f != nil {
				f.Usage += " (env " + e.Name + ")"
			}
		}
	}
	return groups
}

func (c *Config) identityFlags() *pflag.FlagSet {
	f, help := NewFlagSet(), c.vendor.Help
	f.StringVar(&c.Provider, "provider", c.vendor.Name, "this provider's `name`: in HostRef, in machine ids and in the owner tag of its servers; 1 to 40 of a-z, 0-9 and -; two processes in one project must not share it")
	f.AddFlagSet(c.flags.Scope)
	if c.vendor.Fakes {
		f.BoolVar(&c.UseFake, "use-fake-backend", false, "run a fake "+c.vendor.Title+" inside this process, on loopback: for trials and tests, makes no real server"+more(help.Fake))
	}
	f.StringVar(&c.Offerings, "offerings", "", "`file` with the offerings (JSON array); without it a built-in mix shares --seed-count")
	f.IntVar(&c.SeedCount, "seed-count", 16, fmt.Sprintf("`number` of slots of the built-in mix, %s; 1 to %d", help.Mix, offering.MaxSlots))
	f.StringVar(&c.State, "state", "", "state `file`; its folder must exist and be writable. It belongs to the --provider, "+help.Owner.String()+" that it was first used with, and is refused with others. Without it everything is forgotten at exit, which only suits trials")
	f.StringVar(&c.AdminSocket, "admin-socket", "", fmt.Sprintf("`path` of a Unix socket on which root and this process's user can fetch copies of the state file, see hosts and operations, unlock a machine's token for another host, and release kept hosts and spare servers; needs --state. Mode 0600; its folder must belong to this process's user and be writable by it alone, and is made if only it is missing; %d bytes at most", maxSocketPath))
	return f
}

// more is what a vendor adds to a usage text.
func more(words string) string {
	if words == "" {
		return ""
	}
	return "; " + words
}

// withFake is words for vendors alone that have a fake.
func (c *Config) withFake(words string) string {
	if !c.vendor.Fakes {
		return ""
	}
	return words
}

// withChannel is words where the bootstrap channel reaches hosts, and other ones
// where the vendor does.
func (c *Config) withChannel(words, delivered string) string {
	if c.vendor.Delivers {
		return delivered
	}
	return words
}

func (c *Config) cloudFlags() *pflag.FlagSet {
	f := NewFlagSet()
	f.AddFlagSet(c.flags.Account)
	f.StringVar(&c.BaseUserData, "base-user-data", "", "`file` with your own cloud-init user data"+c.withChannel(", merged with ours", ", given to new servers as it is"))
	f.AddFlagSet(c.flags.Calls)
	f.Float64Var(&c.EURUSD, "eur-usd", 1.10, "`dollars` a euro, above 0: prices are listed in USD")
	f.DurationVar(&c.PriceRefresh, "price-refresh", 6*time.Hour, "how often types and prices, and the offerings file, are read again; 1m or more")
	f.DurationVar(&c.ReconcileInterval, "reconcile-interval", 2*time.Minute, "pause between two comparisons with the cloud's inventory; 1s or more")
	f.BoolVar(&c.ReconcileDryRun, "reconcile-dry-run", false, "let reconcile log what it would remove, and remove nothing")
	f.IntVar(&c.RemovalCap, "removal-cap", 5, "`number` of servers, volumes and addresses that no machine claims that one pass may remove; when there are more, it removes none. 0 or more")
	f.DurationVar(&c.TypePause, "type-pause", 30*time.Second, "how long a type is not ordered after "+c.vendor.Title+" refused it for want of stock or quota; doubles with each refusal in a row"+c.withFake(", and the fake backend scales it"))
	f.DurationVar(&c.TypePauseMax, "type-pause-max", 15*time.Minute, "the longest such pause; --type-pause or more")
	return f
}

func (c *Config) bootstrapFlags() *pflag.FlagSet {
	f := NewFlagSet()
	b := &c.Bootstrap
	f.StringVar(&b.Addr, "bootstrap-addr", ":9443", "`address` where the bootstrap channel (HTTPS) listens"+c.withFake("; with the fake backend and no certificate a free port on loopback unless given"))
	f.StringVar(&b.Endpoint, "bootstrap-endpoint", "", "https `URL` under which agents reach the channel; required"+c.withFake(" without the fake"))
	f.StringVar(&b.TLSCert, "bootstrap-tls-cert", "", "PEM `file`: the channel's certificate, chain included; required"+c.withFake(" without the fake")+". Refused when an agent could not verify it for the endpoint's host name with the CA that it pins")
	f.StringVar(&b.TLSKey, "bootstrap-tls-key", "", "PEM `file`: its key")
	f.StringVar(&b.CA, "bootstrap-ca", "", "PEM `file`: the only CA that agents trust; none is the channel's certificate itself")
	f.BoolVar(&b.CAOptional, "bootstrap-ca-optional", false, "take a --bootstrap-ca that is not there at the start, or is empty, for none: a mounted TLS Secret need not have a ca.crt")
	f.StringVar(&b.Secret, "bootstrap-secret", "", "`secret` from which each machine's token is derived; 32 bytes or more. Required"+c.withFake(" without the fake,")+" unless --allow-random-secret is given")
	f.StringVar(&b.SecretPrevious, "bootstrap-secret-previous", "", "the `secret` before, whose tokens and sealed blobs still work while machines move to the new one")
	f.BoolVar(&b.AllowRandomSecret, "allow-random-secret", false, "start without a bootstrap secret and make one up; all tokens die with the process, so for trials only")
	f.StringVar(&b.AgentInstall, "agent-install", "channel", "`how` new servers get the agent: channel, apt or image"+c.withFake("; with the fake backend image, unless given"))
	f.StringVar(&b.AgentPackages, "agent-packages", "", "`folder` with one bigfleet-agent_*_ARCH.deb for each architecture (amd64, arm64), served to new servers; required for --agent-install=channel")
	f.StringVar(&b.APTURI, "agent-apt-uri", "", "`URL` of the APT repository; required for --agent-install=apt")
	f.StringVar(&b.APTSuite, "agent-apt-suite", "stable", "`suite` of the APT repository")
	f.StringVar(&b.APTComponent, "agent-apt-component", "main", "`component` of the APT repository")
	f.StringVar(&b.APTKey, "agent-apt-key", "", "`file` with the repository's public key, ASCII-armoured; required for --agent-install=apt")
	return f
}

func (c *Config) portFlags() *pflag.FlagSet {
	f := NewFlagSet()
	f.StringVar(&c.Addr, "addr", ":9000", "`address` of the gRPC port: CapacityProvider, health and reflection")
	f.StringVar(&c.TLS.Cert, "tls-cert", "", "PEM `file`: the gRPC port's certificate; none means plaintext")
	f.StringVar(&c.TLS.Key, "tls-key", "", "PEM `file`: its key; one of the two alone is refused")
	f.StringVar(&c.TLS.CA, "tls-ca", "", "PEM `file`: client certificates must chain to it (mTLS); refused without the two above")
	f.BoolVar(&c.TLSReload, "tls-reload", false, "follow replaced certificate files of the gRPC port"+c.withChannel(" and the bootstrap channel", "")+"; what does not fit together is not taken")
	f.BoolVar(&c.RequireShardIdentity, "require-shard-identity", false, "refuse client certificates without a bigfleet:// identity; refused without mTLS")
	f.BoolVar(&c.RequireFence, "require-fence", false, "refuse mutating calls without a fencing token")
	f.BoolVar(&c.Reflection, "reflection", true, "serve gRPC reflection")
	f.StringVar(&c.MetricsAddr, "metrics-addr", ":9090", "`address` of /metrics, /healthz and /readyz, in plain HTTP; empty turns it off"+c.withFake(". With the fake backend a taken default gives way to a free port"))
	flags.AllowEmpty(f, "metrics-addr")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	f.StringVar(&c.LogLevel, "log-level", "info", "`level` of the log: debug, info, warn or error")
	return f
}

func (c *Config) timeFlags() *pflag.FlagSet {
	f := NewFlagSet()
	f.IntVar(&c.MaxParallelCreates, "max-parallel-creates", 256, "`number` of Creates under way at a time, from the order to "+c.withChannel("the agent's", "its host's")+" first contact; later ones wait their turn, and their deadline runs")
	f.DurationVar(&c.CreateTimeout, "create-timeout", 30*time.Minute, "deadline of a Create, up to "+c.withChannel("the agent's", "its host's")+" first contact"+more(c.vendor.Help.CreateTimeout))
	f.DurationVar(&c.ConfigureTimeout, "configure-timeout", 15*time.Minute, "deadline of a Configure")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 15*time.Minute, "deadline of a Drain, on top of its grace period")
	f.DurationVar(&c.DeleteTimeout, "delete-timeout", 20*time.Minute, "deadline of a Delete")
	f.DurationVar(&c.ReconnectWindow, "reconnect-window", 2*time.Minute, "how long after a start a host may still report on what it did while no provider was there, although the deadline has passed; may be 0"+c.withFake(". With the fake backend at its pace, unless its hosts are processes or it is given"))
	f.DurationVar(&c.FailedRetention, "failed-retention", 24*time.Hour, "how long the host of a machine that failed while bound is kept, since workloads may run there; may be 0")
	f.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 10*time.Second, "how long gRPC calls in flight may take at shutdown")
	return f
}

func (c *Config) checkFlags() *pflag.FlagSet {
	f := NewFlagSet()
	f.BoolVar(&c.Live, "live", false, "also ask "+c.vendor.Title+", with calls that only read, whether account and offerings are usable; refused by serve")
	return f
}

// flagHelp is the flags as --help prints them.
func flagHelp(v Vendor) string {
	const columns = 100
	var b strings.Builder
	for _, g := range FlagGroups(v) {
		fmt.Fprintf(&b, "\n%s:\n", g.Title)
		for line := range strings.Lines(g.Note) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
		b.WriteString(g.Flags.FlagUsagesWrapped(columns))
	}
	return b.String()
}
