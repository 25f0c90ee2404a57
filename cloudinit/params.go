package cloudinit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"bigfleet-providers/shared/endpoint"
	"bigfleet-providers/shared/pemfile"
)

// Install says how a new machine comes by the agent.
type Install string

// The ways to install.
const (
	InstallChannel Install = "channel" // fetch the .deb over the bootstrap channel
	InstallAPT     Install = "apt"     // install from a signed APT source
	InstallImage   Install = "image"   // the image has it; only start it
)

// Installs lists every way to install.
func Installs() []Install { return []Install{InstallChannel, InstallAPT, InstallImage} }

const (
	// ScalewayLimit is the size up to which Scaleway is known to take user
	// data, for Instances and Elastic Metal alike: it is what the vendor's
	// Terraform provider enforces. The API states none.
	ScalewayLimit = 127998

	// maxMachineID and maxToken bound what Check must assume. A machine id is
	// bounded by the channel, a token is 32 bytes in base64.
	maxMachineID = 256
	maxToken     = 256
)

// Package is one file that the channel serves.
type Package struct {
	File   string // its name under /v1/packages/
	SHA256 string // of its content, 64 lower-case hex digits
}

// APT is the signed source that InstallAPT installs from.
type APT struct {
	URI       string // http or https
	Suite     string
	Component string
	Key       string // OpenPGP public key, ASCII-armoured: apt reads it without gpg
}

// Params is what Render needs to know.
type Params struct {
	Endpoint  string // base URL of the bootstrap channel, https
	CAPEM     string // the certificates the agent trusts, and no others
	MachineID string
	Token     string // the machine's bearer token; secret

	Install  Install
	Packages map[string]Package // by Debian architecture; InstallChannel only
	APT      APT                // InstallAPT only

	// Base is the operator's own user data; empty for none. An #include in it
	// that cannot be fetched at boot makes cloud-init drop all of the user data,
	// ours too.
	Base []byte
	// Limit is the largest result in bytes that the cloud takes; 0 for none.
	Limit int
}

// Check reports everything that would make Render fail for some machine,
// whatever MachineID and Token hold: it judges the size with the longest of
// both. It is meant for start-up.
func Check(p Params) error {
	_, err := Size(p)
	return err
}

// Size is the largest number of bytes that Render can return, whatever MachineID
// and Token hold. It fails where Check does.
func Size(p Params) (int, error) {
	// A quote is what grows most on its way into the agent's config.
	p.MachineID = strings.Repeat(`"`, maxMachineID)
	p.Token = strings.Repeat("=", maxToken)
	data, err := Render(p)
	return len(data), err
}

var (
	architecture = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
	packageFile  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,200}\.deb$`)
	sha256Hex    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	aptWord      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,100}$`)
	tokenText    = regexp.MustCompile(`^[A-Za-z0-9+/_=-]+$`)
)

// validate reports every fault of p but those of Base and Limit.
func (p *Params) validate() error {
	errs := []error{checkURL("Endpoint", p.Endpoint, "https"), checkCA(p.CAPEM)}
	if p.MachineID == "" || len(p.MachineID) > maxMachineID || !printable(p.MachineID) {
		errs = append(errs, fmt.Errorf("MachineID: %q, want 1 to %d printable ASCII characters", p.MachineID, maxMachineID))
	}
	if len(p.Token) > maxToken || !tokenText.MatchString(p.Token) {
		errs = append(errs, fmt.Errorf("token: want 1 to %d characters of base64", maxToken))
	}
	switch p.Install {
	case InstallChannel:
		if len(p.Packages) == 0 {
			errs = append(errs, errors.New("packages: none, want one .deb for each architecture"))
		}
		for arch, pkg := range p.Packages {
			errs = append(errs, pkg.validate(arch))
		}
	case InstallAPT:
		errs = append(errs, p.APT.validate())
	case InstallImage:
	default:
		errs = append(errs, fmt.Errorf("Install: %q is unknown, want one of %q", p.Install, Installs()))
	}
	return errors.Join(errs...)
}

func (pkg Package) validate(arch string) error {
	var errs []error
	if !architecture.MatchString(arch) {
		errs = append(errs, fmt.Errorf("packages: architecture %q, want a Debian one such as amd64", arch))
	}
	if !packageFile.MatchString(pkg.File) {
		errs = append(errs, fmt.Errorf("Packages[%s].File: %q, want the plain name of a .deb", arch, pkg.File))
	}
	if !sha256Hex.MatchString(pkg.SHA256) {
		errs = append(errs, fmt.Errorf("Packages[%s].SHA256: %q, want 64 lower-case hex digits", arch, pkg.SHA256))
	}
	return errors.Join(errs...)
}

func (a APT) validate() error {
	errs := []error{checkURL("APT.URI", a.URI, "http", "https")}
	for _, w := range []struct{ field, value string }{{"APT.Suite", a.Suite}, {"APT.Component", a.Component}} {
		if !aptWord.MatchString(w.value) {
			errs = append(errs, fmt.Errorf("%s: %q, want one word such as stable or main", w.field, w.value))
		}
	}
	if _, err := pemfile.PublicKeys([]byte(a.Key)); err != nil {
		errs = append(errs, fmt.Errorf("APT.Key: %w", err))
	}
	if !printable(strings.ReplaceAll(a.Key, "\n", "")) {
		errs = append(errs, errors.New("APT.Key: want ASCII only, with plain line breaks"))
	}
	return errors.Join(errs...)
}

func checkURL(field, raw string, schemes ...string) error {
	if _, err := endpoint.URL(raw, schemes...); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// checkCA makes sure that the agent will find certificates and nothing else: a
// private key that was pasted in by mistake would be on every machine.
func checkCA(text string) error {
	if _, err := pemfile.Certificates([]byte(text)); err != nil {
		return fmt.Errorf("CAPEM: %w", err)
	}
	if !printable(strings.NewReplacer("\n", "", "\r", "", "\t", "").Replace(text)) {
		return errors.New("CAPEM: want ASCII only, also in comments")
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
