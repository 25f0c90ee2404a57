package scaleway

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/offering"
)

// Flags implements provider.Settings.
func (s *settings) Flags() provider.Flags {
	return provider.Flags{
		Scope: s.scopeFlags(), Account: s.accountFlags(), Calls: s.callFlags(), Fake: s.fakeFlags(),
		Environment: []provider.Variable{
			{Flag: "access-key", Name: "SCW_ACCESS_KEY", Value: &s.AccessKey},
			{Flag: "secret-key", Name: "SCW_SECRET_KEY", Value: &s.SecretKey},
			{Flag: "project-id", Name: "SCW_DEFAULT_PROJECT_ID", Value: &s.ProjectID},
			{Flag: "zone", Name: "SCW_DEFAULT_ZONE", Value: &s.Zone},
			{Flag: "api-url", Name: "SCW_API_URL", Value: &s.APIURL},
		},
	}
}

func (s *settings) scopeFlags() *pflag.FlagSet {
	f := provider.NewFlagSet()
	f.StringVar(&s.Zone, "zone", "", "the one Scaleway `zone` that this process serves, "+defaultZone+" if neither flag nor variable is given; run one process a zone")
	f.StringVar(&s.Substrate, "substrate", offering.Instances, "what to sell, a `substrate`: instances, or elastic-metal for dedicated servers")
	f.StringVar(&s.Backend, "scaleway-backend", backendAuto, "which `backend`: scaleway, fake or auto; auto is scaleway and needs credentials, and never becomes fake by itself")
	return f
}

func (s *settings) accountFlags() *pflag.FlagSet {
	f := provider.NewFlagSet()
	f.StringVar(&s.AccessKey, "access-key", "", "Scaleway access `key`; required without the fake")
	f.StringVar(&s.SecretKey, "secret-key", "", "Scaleway secret `key`; required without the fake, and better not on the command line, where others see it")
	f.StringVar(&s.ProjectID, "project-id", "", "`id` of the Scaleway project that servers are made in; required without the fake")
	f.StringVar(&s.APIURL, "api-url", "", "base `URL` of the Scaleway API; none is the public API")
	f.StringVar(&s.Image, "image", "ubuntu_jammy", "`image` of new servers: a marketplace label or a UUID; of elastic-metal a system's name and version, or id, by default "+defaultSystem)
	f.StringVar(&s.SSHKeys, "ssh-keys", "", "`ids` of IAM SSH keys, comma-separated, that installs of elastic-metal put on servers; none is all that are enabled in the project. Refused with instances, which get those from Scaleway")
	f.BoolVar(&s.NoPublicIP, "no-public-ip", false, "ask for servers without a public IPv4; they need another way to the channel and to their packages, and their first boot is minutes slower")
	return f
}

func (s *settings) callFlags() *pflag.FlagSet {
	f := provider.NewFlagSet()
	f.DurationVar(&s.PollInterval, "poll-interval", 5*time.Second, "how often a server is read while something is awaited of it; of elastic-metal every "+metalPoll.String()+" unless given. 10ms or more; not with the fake backend, which has times of its own")
	f.DurationVar(&s.SettleWindow, "settle-window", 150*time.Second, "how long after an order without an answer its server may still turn up in the list; nothing else is ordered for the machine before, and a shorter one risks a second server. 1s or more; not with the fake backend")
	f.Float64Var(&s.APIRate, "api-rate", 10, fmt.Sprintf("`number` of API calls a second that this process may send in the long run, above 0 and %d at most; the fake backend is limited only if this is given", maxAPIRate))
	f.IntVar(&s.APIBurst, "api-burst", 20, fmt.Sprintf("`number` of API calls it may send at once after a quiet time, 1 to %d", maxAPIRate))
	return f
}

func (s *settings) fakeFlags() *pflag.FlagSet {
	f := provider.NewFlagSet()
	f.StringVar(&s.FakeHosts, "fake-hosts", string(host.InProc), "`what` boots on a fake server: inproc, process or none (then no Create completes)")
	f.Float64Var(&s.FakeScale, "fake-scale", 0.01, "`factor` on the real API's delays, 0 to 10")
	f.StringVar(&s.FakeAgent, "fake-agent", "", "`path` of bigfleet-agent for --fake-hosts=process; none is the one beside this program")
	return f
}
