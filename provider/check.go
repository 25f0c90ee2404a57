package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/store"
)

// checkCommand judges the configuration without serving.
const checkCommand = "check-config"

// checkConfig says what a valid configuration comes to, and with --live what the
// cloud says to it. inUse is of checkPlaces.
func checkConfig(ctx context.Context, cfg *Config, inUse bool, version string, stdout, stderr io.Writer) int {
	all, security, err := openAll(cfg)
	if err != nil {
		fmt.Fprintf(stderr, "the configuration cannot be used:\n%s\n", indent(err))
		return exitUsage
	}
	fmt.Fprintf(stdout, "the configuration is usable: provider %s, %s, gRPC on %s (%s)\n", cfg.Provider, cfg.settings.Scope(cfg), cfg.Addr, security)
	for _, live := range all {
		for _, end := range live.Ends() {
			verb := "ends"
			if !end.At.After(time.Now()) {
				verb = "has ended"
			}
			fmt.Fprintf(stdout, "certificate %s %s on %s (%s)\n", end.Name, verb, end.At.UTC().Format(time.RFC3339), end.Subject)
		}
	}
	if inUse {
		fmt.Fprintf(stdout, "the state file %s was not looked into, since a provider runs on it: make a copy with capacityctl state backup --socket, and check-config with that as --state\n", cfg.State)
	}
	if !cfg.Live {
		return exitOK
	}
	fine, err := checkLive(ctx, cfg, version, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "the live check could not be made:\n%s\n", indent(err))
		return exitFailed
	}
	if !fine {
		return exitFailed
	}
	return exitOK
}

// openAll reads the certificates of both listeners.
func openAll(cfg *Config) (all []*certificates.Live, security string, err error) {
	grpc, security, err := cfg.TLS.open()
	if grpc != nil {
		all = append(all, grpc)
	}
	if err == nil && !cfg.vendor.Delivers && cfg.Bootstrap.TLSCert != "" {
		var channel *certificates.Live
		channel, err = certificates.Open(cfg.Bootstrap.source())
		all = append(all, channel)
	}
	return all, security, err
}

// checkPlaces judges what a start finds out by opening it: the state file, and
// where the admin socket will be. A start gives up for them later, and may be
// tried again: a volume that is not mounted yet is worth another start, and a
// configuration that cannot be used is not.
// inUse says that a provider runs on the state file, which was then not read.
func checkPlaces(c *Config) (inUse bool, err error) {
	if err = checkStatePlace(c.State); err == nil {
		inUse, err = checkState(c)
	}
	return inUse, errors.Join(err, checkAdminPlace(c.AdminSocket))
}

// checkStatePlace judges where the state file is or will be. Its folder must be
// writable even if it is there: an upgrade puts a copy beside it.
func checkStatePlace(path string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case err != nil:
		return fmt.Errorf("--state: %s: its folder: %w; make it, for the provider's user", path, err)
	case !info.IsDir():
		return fmt.Errorf("--state: %s: %s is not a folder", path, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("--state: %s: its folder is not writable for this user: %w", path, err)
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist): // it will be made
	case err != nil:
		return fmt.Errorf("--state: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("--state: %s: is not a regular file; name a file", path)
	case unix.Access(path, unix.R_OK|unix.W_OK) != nil:
		return fmt.Errorf("--state: %s: is not readable and writable for this user", path)
	}
	return nil
}

// checkState judges the state file that is there, as far as that changes nothing.
func checkState(c *Config) (inUse bool, err error) {
	if c.State == "" {
		return false, nil
	}
	switch err := store.Check(c.State, c.owner()); {
	case err == nil, errors.Is(err, fs.ErrNotExist): // it will be made
		return false, nil
	case errors.Is(err, store.ErrLocked):
		return true, nil
	default:
		return false, fmt.Errorf("--state: %w", err)
	}
}

// checkAdminPlace judges where the admin socket will be.
func checkAdminPlace(path string) error {
	if path == "" {
		return nil
	}
	fault := func(err error) error { return fmt.Errorf("--admin-socket: %s: %w", path, err) }
	dir := filepath.Dir(path)
	err := ownFolder(dir)
	if errors.Is(err, fs.ErrNotExist) { // it is made, in one that is there
		if _, err := os.Stat(filepath.Dir(dir)); err != nil {
			return fault(fmt.Errorf("%w; make its folder, for the provider's user", err))
		}
		return nil
	}
	if err != nil {
		return fault(err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fault(err)
	case info.Mode().Type() != fs.ModeSocket:
		return fault(errNoSocket)
	}
	return nil
}
