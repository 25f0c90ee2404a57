package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/endpoint"
	"bigfleet-providers/shared/jsonkeys"
	"bigfleet-providers/shared/token"
)

// Where things are when the configuration does not say.
const (
	DefaultConfigPath = "/etc/bigfleet-agent/config.json"
	DefaultStateDir   = "/var/lib/bigfleet-agent"
	DefaultRuntimeDir = "/run/bigfleet-agent"
)

const maxConfigBytes = 1 << 20

// Values of Config.HookRunner.
const (
	RunnerAuto    = "auto"    // RunnerSystemd where systemd is the host's manager, else RunnerDirect
	RunnerSystemd = "systemd" // each hook is a transient unit
	RunnerDirect  = "direct"  // each hook is a process group
)

// Config is the agent's configuration file. It holds the machine's bearer
// token, so the file must be readable by its owner alone. Fields that an agent
// does not know are skipped, since the file may be written by a newer provider.
type Config struct {
	Endpoint  string `json:"endpoint"`   // the provider's bootstrap channel: https://host[:port][/prefix]
	CAPEM     string `json:"ca_pem"`     // the only certificates that are trusted
	MachineID string `json:"machine_id"` // the contract's machine id
	Token     Token  `json:"token"`      // see package token

	Hook       string `json:"hook,omitempty"`        // the hook; looked for in its usual places when empty
	StateDir   string `json:"state_dir,omitempty"`   // the journal; survives a reboot
	RuntimeDir string `json:"runtime_dir,omitempty"` // blobs and runs; on tmpfs
	HookRunner string `json:"hook_runner,omitempty"` // RunnerAuto, RunnerSystemd or RunnerDirect
}

// Token is a bearer token that does not print.
type Token string

// String hides the token from every fmt verb that prints a value.
func (Token) String() string { return "[redacted]" }

// GoString hides the token from %#v.
func (Token) GoString() string { return "[redacted]" }

// LoadConfig reads and judges the file at path and reports every fault at once.
// No error holds the token.
func LoadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	var errs []error
	if mode := info.Mode(); mode.Perm()&0o077 != 0 {
		errs = append(errs, fmt.Errorf("it has mode %#o and holds a token: only its owner may read it (chmod 0600 %s)", mode.Perm(), path))
	}
	if others := whoElseWrites(path, info); others != nil {
		errs = append(errs, others)
	}
	body, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(body) > maxConfigBytes {
		err = fmt.Errorf("over %d bytes", maxConfigBytes)
	}
	var c Config
	if err == nil {
		err = parse(body, &c)
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, errors.Join(append(errs, err)...))
	}
	c.setDefaults()
	if err := errors.Join(append(errs, c.Validate())...); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// parse reads JSON. Its errors name a place and not what stands there, which may
// be the token.
func parse(body []byte, c *Config) error {
	if err := jsonkeys.CheckMark(body); err != nil {
		return err
	}
	err := json.Unmarshal(body, c)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("it is empty")
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d of %d", syntax.Offset, len(body))
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s: want a %s", kind.Field, kind.Type.Kind())
	case err != nil:
		return errors.New("not a JSON object")
	}
	// The last one would count, of a token, say, whatever its case.
	var errs []error
	for _, fault := range jsonkeys.Repeated(body, "", true) {
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	if c.StateDir == "" {
		c.StateDir = DefaultStateDir
	}
	if c.RuntimeDir == "" {
		c.RuntimeDir = DefaultRuntimeDir
	}
}

// Validate reports every fault of c at once.
func (c *Config) Validate() error {
	_, endpointErr := c.endpoint()
	errs := []error{endpointErr}
	if c.CAPEM == "" {
		errs = append(errs, errors.New("ca_pem: missing; it is the CA of the provider's bootstrap channel in PEM"))
	} else if _, err := poll.NewHTTPClient(c.CAPEM); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.MachineID == "":
		errs = append(errs, errors.New("machine_id: missing"))
	case len(c.MachineID) > command.MaxIDBytes:
		errs = append(errs, fmt.Errorf("machine_id: %d bytes, the limit is %d", len(c.MachineID), command.MaxIDBytes))
	}
	if c.Token == "" {
		errs = append(errs, errors.New("token: missing"))
	} else if _, err := token.Decode(string(c.Token)); err != nil {
		errs = append(errs, fmt.Errorf("token: %w", err))
	}
	if !slices.Contains([]string{"", RunnerAuto, RunnerSystemd, RunnerDirect}, c.HookRunner) {
		errs = append(errs, fmt.Errorf("hook_runner: %q is not one of %s, %s, %s", c.HookRunner, RunnerAuto, RunnerSystemd, RunnerDirect))
	}
	for _, p := range []struct{ field, path string }{{"hook", c.Hook}, {"state_dir", c.StateDir}, {"runtime_dir", c.RuntimeDir}} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			errs = append(errs, fmt.Errorf("%s: %q is not an absolute path", p.field, p.path))
		}
	}
	return errors.Join(errs...)
}

// endpoint does not quote the text: an operator may have put a password in it.
func (c *Config) endpoint() (*url.URL, error) {
	if c.Endpoint == "" {
		return nil, errors.New("endpoint: missing; want https://host[:port]")
	}
	u, err := endpoint.URL(c.Endpoint, "https")
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	return u, nil
}
