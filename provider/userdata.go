package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bigfleet-providers/cloudinit"
)

// architectures are Debian's names of what the clouds sell.
var architectures = []string{"amd64", "arm64"}

// userDataParams is what all machines' user data have in common, but for the CA
// that BootstrapConfig.openCertificates reads. Files are read once, at start.
func (c *Config) userDataParams() (cloudinit.Params, error) {
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	p := cloudinit.Params{
		Endpoint: c.Bootstrap.Endpoint,
		Install:  cloudinit.Install(c.Bootstrap.AgentInstall),
		Limit:    c.settings.Scope(c).UserDataLimit,
	}
	if c.UseFake && !c.Given("agent-install") {
		p.Install = cloudinit.InstallImage // a fake host has no package manager
	}
	var err error
	p.Base, err = readFile("base-user-data", c.BaseUserData)
	keep(err)
	switch p.Install {
	case cloudinit.InstallImage:
	case cloudinit.InstallChannel:
		p.Packages, err = findPackages(c.Bootstrap.AgentPackages)
		keep(err)
	case cloudinit.InstallAPT:
		key, err := readFile("agent-apt-key", c.Bootstrap.APTKey)
		keep(err)
		if c.Bootstrap.APTURI == "" || len(key) == 0 {
			errs = append(errs, errors.New("--agent-apt-uri and --agent-apt-key: needed for --agent-install=apt"))
		}
		p.APT = cloudinit.APT{URI: c.Bootstrap.APTURI, Suite: c.Bootstrap.APTSuite, Component: c.Bootstrap.APTComponent, Key: strings.ReplaceAll(string(key), "\r\n", "\n")}
	default:
		var words []string
		for _, i := range cloudinit.Installs() {
			words = append(words, string(i))
		}
		errs = append(errs, fmt.Errorf("--agent-install: %q is unknown, want one of %s", p.Install, strings.Join(words, ", ")))
	}
	return p, errors.Join(errs...)
}

// wholeParams are userDataParams with the CA, and with what stands in for the
// fake's own endpoint and CA before there is a fake.
func (c *Config) wholeParams(caPEM string) (cloudinit.Params, error) {
	params, err := c.userDataParams()
	if err != nil {
		return params, err
	}
	params.CAPEM = caPEM
	if c.UseFake && c.Bootstrap.TLSCert == "" && c.Bootstrap.Endpoint == "" {
		pair, err := newPair() // as large as the fake's own
		if err != nil {
			return params, err
		}
		cert, _ := pem.Decode(pair)
		params.Endpoint, params.CAPEM = trialEndpoint, string(pem.EncodeToMemory(cert))
	}
	return params, nil
}

// findPackages finds the newest agent package, by modification time, of each
// architecture in a folder and hashes it. Older ones may stay: a host that was
// created before an upgrade and boots after it still asks for its own.
func findPackages(dir string) (map[string]cloudinit.Package, error) {
	if dir == "" {
		return nil, errors.New("--agent-packages: missing; --agent-install=channel serves the agent's .deb from there (or choose apt or image)")
	}
	found := map[string]cloudinit.Package{}
	for _, arch := range architectures {
		files, err := filepath.Glob(filepath.Join(dir, "bigfleet-agent_*_"+arch+".deb"))
		if err != nil {
			return nil, fmt.Errorf("--agent-packages %s: %w", dir, err)
		}
		newest, modified := "", time.Time{}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				return nil, fmt.Errorf("--agent-packages: %w", err)
			}
			if newest == "" || info.ModTime().After(modified) {
				newest, modified = file, info.ModTime()
			}
		}
		if newest == "" {
			continue
		}
		sum, err := hashFile(newest)
		if err != nil {
			return nil, fmt.Errorf("--agent-packages: %w", err)
		}
		found[arch] = cloudinit.Package{File: filepath.Base(newest), SHA256: sum}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("--agent-packages %s: holds no bigfleet-agent_VERSION_ARCH.deb", dir)
	}
	return found, nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
