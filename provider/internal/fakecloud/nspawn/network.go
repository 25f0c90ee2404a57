package nspawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MetadataAddr is where a Scaleway guest looks for its metadata service
// (cloud-init, DataSourceScaleway.py).
const MetadataAddr = "169.254.42.42:80"

// commandTime bounds programs that set up and tear down.
const commandTime = 30 * time.Second

// maxGuests bounds the guests of one network; its addresses end there.
const maxGuests = 200

// Network is a bridge for guests. Its methods may be called from any goroutine.
type Network struct {
	claim *claim
	log   *slog.Logger
	dhcp  *dhcpServer

	mu   sync.Mutex // guards what follows
	next byte
}

// OpenNetwork removes what killed programs left and makes a new network. A nil
// logger discards.
func OpenNetwork(log *slog.Logger) (*Network, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, err := takeClaim(log)
	if err != nil {
		return nil, err
	}
	n := &Network{claim: c, log: log}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) open() error {
	// The metadata address is on every bridge; who answers is decided by the
	// interface that a call comes in on.
	err := ip(
		"link add "+n.Name()+" type bridge",
		"addr add "+n.Gateway().String()+"/24 dev "+n.Name(),
		"addr add "+n.Gateway6().String()+"/64 dev "+n.Name()+" nodad",
		"addr add "+metadataIP()+"/32 dev "+n.Name(),
		"link set "+n.Name()+" up",
	)
	if err != nil {
		return err
	}
	n.dhcp, err = serveDHCP(n)
	return err
}

// Name is the bridge's, and the beginning of every name that belongs to the
// network.
func (n *Network) Name() string { return n.claim.name() }

// Gateway is this machine's IPv4 address on the network.
func (n *Network) Gateway() netip.Addr { return n.claim.addr4(1) }

// Gateway6 is this machine's IPv6 address on the network.
func (n *Network) Gateway6() netip.Addr { return n.claim.addr6(1) }

// Listen listens on this machine's end of the network, and for its guests only:
// the same address may be served on other networks at the same time.
func (n *Network) Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: n.bindToBridge}
	return config.Listen(ctx, "tcp", addr)
}

func (n *Network) bindToBridge(_, _ string, conn syscall.RawConn) error {
	var bound error
	err := conn.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), n.Name()) })
	return errors.Join(err, bound)
}

// Close removes the network. Its guests must be down.
func (n *Network) Close() error {
	var errs []error
	if n.dhcp != nil {
		errs = append(errs, n.dhcp.close())
	}
	return errors.Join(append(errs, n.claim.release())...)
}

// number picks the number of a new guest, 2 and up.
func (n *Network) number() (byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == maxGuests {
		return 0, fmt.Errorf("network %s has had %d guests, which is the most: open another", n.Name(), maxGuests)
	}
	n.next++
	return n.next + 1, nil
}

func metadataIP() string {
	host, _, _ := strings.Cut(MetadataAddr, ":")
	return host
}

// ip runs commands of ip(8), each as it is written in a shell.
func ip(commands ...string) error { return ipIn("", commands...) }

// ipIn runs commands of ip(8) in a network namespace.
func ipIn(namespace string, commands ...string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-netns", namespace}, args...)
	}
	return run(strings.Join(commands, "\n")+"\n", "ip", args...)
}

// run runs a program that takes no time. Cleaning up must not depend on the
// context of a call that has ended.
func run(input, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
