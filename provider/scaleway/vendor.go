// Package scaleway is all that a provider's process needs to know of Scaleway:
// its flags and variables, what of it is served, how its adapters are opened, and
// its fake.
package scaleway

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"time"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/shared/endpoint"
)

// Vendor is Scaleway, for provider.Main.
func Vendor() provider.Vendor {
	return provider.Vendor{
		Name:  "scaleway",
		Title: "Scaleway",
		Fakes: true,
		Help: provider.Help{
			Owner:         provider.Owner{Zone: "--zone", Substrate: "--substrate", Project: "--project-id"},
			Mix:           "half DEV1-S and half GP1-XS",
			Fake:          "the same as --scaleway-backend=fake, and refused with --scaleway-backend=scaleway",
			CallRate:      "--api-rate",
			CreateTimeout: "of elastic-metal " + metalCreateTimeout.String() + " unless given",
		},
		Settings: func() provider.Settings { return new(settings) },
	}
}

// settings are what an operator can set for Scaleway alone.
type settings struct {
	Zone      string
	Substrate string
	Backend   string

	AccessKey  string
	SecretKey  string
	ProjectID  string
	APIURL     string
	Image      string
	SSHKeys    string
	NoPublicIP bool

	PollInterval time.Duration
	SettleWindow time.Duration
	APIRate      float64
	APIBurst     int

	FakeHosts string
	FakeScale float64
	FakeAgent string
}

// The values of --scaleway-backend.
const (
	backendReal = "scaleway"
	backendFake = "fake"
	backendAuto = "auto"
)

// defaultZone is used when neither --zone nor SCW_DEFAULT_ZONE is set.
const defaultZone = "fr-par-1"

// What elastic-metal has other defaults for. An install takes minutes, and has
// been seen to take an hour.
const (
	defaultSystem      = "Ubuntu 24.04"
	metalCreateTimeout = 2 * time.Hour
	metalPoll          = 15 * time.Second
)

func (s *settings) metal() bool { return s.Substrate == offering.ElasticMetal }

// Complete implements provider.Settings.
func (s *settings) Complete(c *provider.Config) {
	if s.Zone == "" {
		s.Zone = defaultZone
	}
	if s.Backend == backendFake {
		c.UseFake = true
	}
	if !s.metal() {
		return
	}
	if !c.Given("image") {
		s.Image = defaultSystem
	}
	if !c.Given("create-timeout") {
		c.CreateTimeout = metalCreateTimeout
	}
	if !c.Given("poll-interval") {
		s.PollInterval = metalPoll
	}
}

// Scope implements provider.Settings.
func (s *settings) Scope(c *provider.Config) provider.Scope {
	scope := provider.Scope{
		Zone: s.Zone, Substrate: s.Substrate, Project: s.ProjectID, UserDataLimit: cloudinit.ScalewayLimit,
		Offerings: offering.Rules{Substrate: s.Substrate, Zone: s.Zone, Tag: scaleway.CheckTag},
	}
	if c.UseFake {
		scope.Project = fakecloud.DefaultProjectID
	}
	if s.metal() {
		scope.UserDataLimit = elasticmetal.MaxUserDataBytes
	}
	return scope
}

// Builtin implements provider.Settings: n machines, shared between a small and a
// larger type of the substrate. An unknown substrate offers nothing.
func (s *settings) Builtin(n int) []offering.Offering {
	var pair [2]offering.Offering
	switch s.Substrate {
	case offering.Instances:
		pair = [2]offering.Offering{
			{CommercialType: "DEV1-S", Resources: map[string]string{"cpu": "1", "memory": "1Gi"}},
			{CommercialType: "GP1-XS", Resources: map[string]string{"cpu": "3", "memory": "12Gi"}},
		}
	case offering.ElasticMetal:
		pair = [2]offering.Offering{
			{CommercialType: "EM-A210R-HDD", Resources: map[string]string{"cpu": "10", "memory": "12Gi"}},
			{CommercialType: "EM-B112X-SSD", Resources: map[string]string{"cpu": "14", "memory": "40Gi"}},
		}
	default:
		return nil
	}
	counts := [2]int{(n + 1) / 2, n / 2}
	var list []offering.Offering
	for i, o := range pair {
		o.Zone, o.Capacity, o.Count = s.Zone, offering.Capacity(s.Substrate), counts[i]
		if o.Count > 0 {
			list = append(list, o)
		}
	}
	return list
}

// LogAccount implements provider.Settings: which key and project, for those who
// rotate or audit keys. No part of the key is logged, so its fingerprint stands
// for it.
func (s *settings) LogAccount(log *slog.Logger) {
	sum := sha256.Sum256([]byte(s.AccessKey))
	log.Info("Scaleway account", "key_fingerprint", hex.EncodeToString(sum[:4]), "project", s.ProjectID)
	if inClear(s.APIURL) {
		log.Warn("the secret key travels in clear: --api-url is http and not on this host", "api_url", s.APIURL)
	}
}

// inClear says whether an API's address has the secret key leave this host
// without TLS.
func inClear(apiURL string) bool {
	u, err := endpoint.URL(apiURL, "http")
	if err != nil { // it has TLS, or is none that is dialled
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback())
}
