package scaleway

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/shared/endpoint"
)

// maxAPIRate bounds --api-rate and --api-burst, which mean nothing above it.
const maxAPIRate = 10_000

var (
	// zoneName is what the SDK accepts as a zone. Zones are not looked up in its
	// list, which lags behind the zones that open.
	zoneName = regexp.MustCompile(`^[a-z]{2}-[a-z]{3,7}-[0-9]{1,2}$`)
	// accessKeyForm is one without which, as without UUIDs, the SDK makes no client.
	accessKeyForm = regexp.MustCompile(`^SCW[A-Z0-9]{17}$`)
)

// Validate implements provider.Settings.
func (s *settings) Validate(c *provider.Config) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(flag, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			fault("--%s: %q is unknown, want one of %s", flag, value, strings.Join(allowed, ", "))
		}
	}
	atLeast := func(flag string, value, least time.Duration) {
		if value < least {
			fault("--%s: %s, want %s or more", flag, value, least)
		}
	}
	if !zoneName.MatchString(s.Zone) {
		fault("--zone: %q is not a zone, such as fr-par-1", s.Zone)
	}
	oneOf("substrate", s.Substrate, offering.Instances, offering.ElasticMetal)
	oneOf("scaleway-backend", s.Backend, backendReal, backendFake, backendAuto)
	oneOf("fake-hosts", s.FakeHosts, string(host.InProc), string(host.Process), string(host.None))
	if c.UseFake && s.Backend == backendReal {
		fault("--use-fake-backend contradicts --scaleway-backend=scaleway")
	}
	if !(s.APIRate > 0) || s.APIRate > maxAPIRate {
		fault("--api-rate: %v, want above 0, and %d at most", s.APIRate, maxAPIRate)
	}
	if s.APIBurst < 1 || s.APIBurst > maxAPIRate {
		fault("--api-burst: %d, want 1 to %d", s.APIBurst, maxAPIRate)
	}
	if s.Image == "" {
		fault("--image: missing")
	}
	if s.metal() {
		errs = append(errs, s.validateMetal())
	} else if s.SSHKeys != "" {
		fault("--ssh-keys: only with --substrate=%s; Instances get the project's keys from Scaleway", offering.ElasticMetal)
	}
	if !(s.FakeScale >= 0) || s.FakeScale > 10 {
		fault("--fake-scale: %v, want 0 to 10", s.FakeScale)
	}
	atLeast("poll-interval", s.PollInterval, 10*time.Millisecond)
	atLeast("settle-window", s.SettleWindow, time.Second)
	errs = append(errs, s.validateCredentials(c))
	return errors.Join(errs...)
}

func (s *settings) validateMetal() error {
	var errs []error
	for _, id := range s.sshKeys() {
		if !offering.IsUUID(id) {
			errs = append(errs, fmt.Errorf("--ssh-keys: %q is not the id of an IAM SSH key, a UUID", id))
		}
	}
	if s.NoPublicIP {
		errs = append(errs, fmt.Errorf("--no-public-ip: not with --substrate=%s, whose servers come with an address", offering.ElasticMetal))
	}
	return errors.Join(errs...)
}

// sshKeys are the ids in --ssh-keys, as Scaleway writes them.
func (s *settings) sshKeys() []string {
	return strings.FieldsFunc(strings.ToLower(s.SSHKeys), func(r rune) bool { return r == ',' || r == ' ' })
}

// validateCredentials: without credentials and without the fake there is
// nothing to provide, and the fake is never chosen in silence.
func (s *settings) validateCredentials(c *provider.Config) error {
	if c.UseFake {
		return nil
	}
	var errs []error
	for _, k := range []struct {
		flag, variable, value string
		fits                  func(string) bool
		want                  string
	}{
		{"access-key", "SCW_ACCESS_KEY", s.AccessKey, accessKeyForm.MatchString, "SCW and 17 more of A-Z and 0-9"},
		{"secret-key", "SCW_SECRET_KEY", s.SecretKey, offering.IsUUID, "a UUID"},
		{"project-id", "SCW_DEFAULT_PROJECT_ID", s.ProjectID, offering.IsUUID, "a UUID"},
	} {
		switch {
		case c.Unread(k.flag): // said already, and why
		case k.value == "":
			errs = append(errs, fmt.Errorf("--%s: missing; set %s (or %s_FILE), or use --use-fake-backend for a trial without Scaleway", k.flag, k.variable, k.variable))
		case strings.ContainsAny(k.value, "\r\n"):
			errs = append(errs, fmt.Errorf("--%s (%s): a newline is inside the value; want %s, on one line", k.flag, k.variable, k.want))
		case !k.fits(k.value):
			// None is quoted: a secret may have been put where another belongs.
			errs = append(errs, fmt.Errorf("--%s (%s): %d characters of another form; want %s", k.flag, k.variable, utf8.RuneCountInString(k.value), k.want))
		}
	}
	if s.APIURL != "" && !c.Unread("api-url") {
		switch err := endpoint.Check(s.APIURL, "https", "http"); {
		case err != nil && strings.Contains(s.APIURL, "@"):
			errs = append(errs, errors.New("--api-url (SCW_API_URL): has a user in it; the account is given by --access-key and --secret-key"))
		case err != nil:
			errs = append(errs, fmt.Errorf("--api-url (SCW_API_URL): %w", err))
		}
	}
	read := !slices.ContainsFunc([]string{"access-key", "secret-key", "project-id", "zone", "api-url"}, c.Unread)
	if len(errs) == 0 && read && zoneName.MatchString(s.Zone) {
		// Whatever else the client may not like; it makes no call.
		if _, err := scaleway.NewClient(s.credentials()); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
