package nspawn

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	claimDir    = "/run/bigfleet-nspawn"
	claimPrefix = "bfn"
	claims      = 32
)

// claim is the right to one of the machine's network names, and with it to
// the addresses and to every name that begins with it. It is a file lock, which
// ends with the process that has it.
type claim struct {
	n    byte
	lock *os.File
}

func (c *claim) name() string { return fmt.Sprintf("%s%02d", claimPrefix, c.n) }

func (c *claim) addr4(host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 213, c.n, host}) }

func (c *claim) addr6(host byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xbf, 5: c.n, 15: host})
}

// addrLinkLocal is for guests that have IPv6 and the metadata service only.
func (c *claim) addrLinkLocal(host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{169, 254, 128 + c.n, host})
}

// takeClaim cleans up after every holder that is gone and takes the first name
// that is free.
func takeClaim(log *slog.Logger) (*claim, error) {
	if err := os.MkdirAll(claimDir, 0o700); err != nil {
		return nil, fmt.Errorf("nspawn: %w", err)
	}
	var taken *claim
	for n := range byte(claims) {
		c, err := tryClaim(n + 1)
		if c == nil || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if removed, err := c.sweep(); err != nil {
			log.Warn("leftovers stay", "name", c.name(), "error", err)
			if err := c.lock.Close(); err != nil {
				return nil, err
			}
			continue
		} else if len(removed) > 0 {
			log.Info("removed what a killed program left", "names", removed)
		}
		if taken == nil {
			taken = c
			continue
		}
		if err := c.lock.Close(); err != nil {
			return nil, err
		}
	}
	if taken == nil {
		return nil, fmt.Errorf("nspawn: all %d networks are in use (%s)", claims, claimDir)
	}
	return taken, nil
}

// tryClaim returns nil when another process has the name.
func tryClaim(n byte) (*claim, error) {
	c := &claim{n: n}
	f, err := os.OpenFile(filepath.Join(claimDir, c.name()), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("nspawn: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, f.Close()
	}
	c.lock = f
	return c, nil
}

func (c *claim) release() error {
	_, err := c.sweep()
	return errors.Join(err, c.lock.Close())
}

// sweep removes everything that carries the name and says what it was.
func (c *claim) sweep() (removed []string, err error) {
	var errs []error
	groups, err := groupsLike(c.name() + "-*")
	errs = append(errs, err)
	for _, dir := range groups {
		removed = append(removed, dir)
		errs = append(errs, removeGroup(dir))
	}
	namespaces, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range namespaces {
		if strings.HasPrefix(entry.Name(), c.name()+"-") {
			removed = append(removed, entry.Name())
			errs = append(errs, ip("netns del "+entry.Name()))
		}
	}
	links, err := net.Interfaces()
	errs = append(errs, err)
	// A pair of devices is in the list once or not at all: the other end is in a
	// namespace that went just now, and took this one with it.
	for _, link := range links {
		if link.Name == c.name() || strings.HasPrefix(link.Name, c.name()+"-") {
			removed = append(removed, link.Name)
			errs = append(errs, removeLink(link.Name))
		}
	}
	slices.Sort(removed)
	return slices.Compact(removed), errors.Join(errs...)
}

func removeLink(name string) error {
	err := ip("link del " + name)
	if err != nil && bytes.Contains([]byte(err.Error()), []byte("Cannot find device")) {
		return nil
	}
	return err
}
