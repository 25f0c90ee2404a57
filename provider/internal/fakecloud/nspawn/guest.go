package nspawn

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed spawn.sh
var spawnScript string

// Bind makes a file or folder of this machine visible in a guest.
type Bind struct {
	Source   string // on this machine; must exist
	Target   string // in the guest
	ReadOnly bool
}

// Options say what a guest is.
type Options struct {
	// Name is the host name until the guest gives itself another.
	Name string
	// Dir is where its disk is kept; it is made where missing. A disk that is
	// there already is used as it is.
	Dir string
	// Layers are the read-only trees under the disk, the topmost first.
	Layers []string
	// NoIPv4 leaves the guest with an IPv4 address that reaches the metadata
	// service and nothing else.
	NoIPv4 bool
	Binds  []Bind
	// Capabilities are added to nspawn's own; CAP_NET_ADMIN and CAP_NET_RAW are
	// always there, since the guest sets up its network.
	Capabilities []string
	// SystemCalls are allowed beyond nspawn's own list, as for a kubelet:
	// "add_key", "keyctl".
	SystemCalls []string
}

const (
	exitReboot = 133 // of systemd-nspawn --keep-unit, when the guest wants to boot again
	startTime  = 20 * time.Second

	// What PID 1 of a guest takes for "power off" (systemd(1), SIGRTMIN+4).
	powerOffSignal = syscall.Signal(34 + 4)

	consoleLog = "console.log"
)

// Guest is a machine: a disk, and a booted system while it is on. Start, Stop
// and Erase are called one at a time; the rest from any goroutine.
type Guest struct {
	network *Network
	opts    Options
	number  byte

	mu      sync.Mutex // guards what follows
	running *running   // nil when off
}

// running is one run of systemd-nspawn, by spawn.sh.
type running struct {
	cmd    *exec.Cmd
	leader int           // the guest's PID 1, as this machine numbers it
	done   chan struct{} // closed once it was waited for
}

// NewGuest makes a guest that is off.
func (n *Network) NewGuest(opts Options) (*Guest, error) {
	for _, path := range append([]string{opts.Dir}, opts.Layers...) {
		if strings.ContainsAny(path, `:,\`) {
			return nil, fmt.Errorf("guest %s: path %q: the options of an overlay cannot hold a colon, comma or backslash", opts.Name, path)
		}
	}
	number, err := n.number()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"disk", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(opts.Dir, dir), 0o755); err != nil { //nolint:gosec // the guest's root folder, for all its users
			return nil, fmt.Errorf("guest %s: %w", opts.Name, err)
		}
	}
	return &Guest{network: n, opts: opts, number: number}, nil
}

// Disk is the folder with what the guest has changed over its layers. Files may
// be put there before its first start.
func (g *Guest) Disk() string { return filepath.Join(g.opts.Dir, "disk") }

// Console is the file with what the guest printed while it booted.
func (g *Guest) Console() string { return filepath.Join(g.opts.Dir, consoleLog) }

// Addr is the guest's IPv4 address.
func (g *Guest) Addr() netip.Addr {
	if g.opts.NoIPv4 {
		return g.network.claim.addrLinkLocal(g.number)
	}
	return g.network.claim.addr4(g.number)
}

// Addr6 is the guest's IPv6 address.
func (g *Guest) Addr6() netip.Addr { return g.network.claim.addr6(g.number) }

// label names the guest's device, namespace and cgroups.
func (g *Guest) label() string { return fmt.Sprintf("%s-%d", g.network.Name(), g.number) }

// Start powers the guest on and returns when its PID 1 runs.
func (g *Guest) Start(ctx context.Context) error {
	if g.current() != nil {
		return fmt.Errorf("guest %s: it is on", g.opts.Name)
	}
	if err := g.start(ctx); err != nil {
		return fmt.Errorf("guest %s: %w", g.opts.Name, err)
	}
	return nil
}

func (g *Guest) start(ctx context.Context) error {
	groups, err := makeGroups(g.label())
	if err != nil {
		return err
	}
	list := filepath.Join(g.opts.Dir, "cgroups")
	if err := os.WriteFile(list, []byte(strings.Join(groups, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if err := g.plug(); err != nil {
		return err
	}
	console, err := os.OpenFile(g.Console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	args := append([]string{
		"-c", spawnScript, "spawn", strings.Join(g.opts.Layers, ":"), g.Disk(),
		filepath.Join(g.opts.Dir, "work"), g.mountPoint(), list,
	}, g.arguments()...)
	r := &running{cmd: exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = console, console
	// Nothing of a guest outlives the program: neither its processes nor, with
	// their namespace, its mounts.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS,
	}
	if err := r.launch(); err != nil {
		return err
	}
	if r.leader, err = r.awaitLeader(ctx); err != nil {
		r.kill()
		return errors.Join(fmt.Errorf("%w; its console is %s", err, g.Console()), removeGroups(groups))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = r
	return nil
}

// plug gives the guest a network namespace with one end of a new cable.
func (g *Guest) plug() error {
	name, bridge := g.label(), g.network.Name()
	if _, err := os.Stat("/run/netns/" + name); err == nil {
		if err := ip("netns del " + name); err != nil {
			return err
		}
	}
	if err := removeLink(name); err != nil {
		return err
	}
	commands := []string{
		"netns add " + name,
		"link add " + name + " type veth peer name eth0 address " + hardwareAddr(g.Addr()).String() + " netns " + name,
		"link set " + name + " master " + bridge + " up",
	}
	if g.opts.NoIPv4 {
		commands = append(commands, "route replace "+g.Addr().String()+"/32 dev "+bridge)
	}
	if err := ip(commands...); err != nil {
		return err
	}
	// A guest that takes the link down and up again, as dhclient does, would lose
	// the address: it is neither announced here nor in the guest's configuration.
	err := run("", "ip", "netns", "exec", name, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down")
	if err != nil {
		return err
	}
	return ipIn(name, "link set lo up", "link set eth0 up", "addr add "+g.Addr6().String()+"/64 dev eth0 nodad")
}

func (g *Guest) mountPoint() string { return filepath.Join(g.opts.Dir, "root") }

// arguments are those of systemd-nspawn.
func (g *Guest) arguments() []string {
	args := []string{
		"--boot", "--keep-unit", "--register=no", "--quiet", "--console=passive",
		"--machine=" + g.opts.Name, "--directory=" + g.mountPoint(),
		"--network-namespace-path=/run/netns/" + g.label(),
		"--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--capability=" + strings.Join(append([]string{"CAP_NET_ADMIN", "CAP_NET_RAW"}, g.opts.Capabilities...), ","),
	}
	if len(g.opts.SystemCalls) > 0 {
		args = append(args, "--system-call-filter="+strings.Join(g.opts.SystemCalls, " "))
	}
	for _, b := range g.opts.Binds {
		flag := "--bind="
		if b.ReadOnly {
			flag = "--bind-ro="
		}
		args = append(args, flag+b.Source+":"+b.Target)
	}
	return args
}

// launch starts the process from a thread that stays: a death signal is sent
// when the thread that forked ends, not the process.
func (r *running) launch() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = r.cmd.Wait() // its exit code is in ProcessState
		close(r.done)
	}()
	return <-started
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill() // it may have ended by itself
	<-r.done
}

func (g *Guest) current() *running {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Wait returns when the guest has gone down, and tells whether it asked to be
// booted again. Call Stop in either case.
func (g *Guest) Wait(ctx context.Context) (reboot bool, err error) {
	r := g.current()
	if r == nil {
		return false, nil
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-r.done:
		return r.cmd.ProcessState.ExitCode() == exitReboot, nil
	}
}

// Stop powers the guest off: it may shut down for as long as patience says, then
// the power is cut, at once with none. A guest that is off is fine.
func (g *Guest) Stop(patience time.Duration) error {
	r := g.current()
	if r == nil {
		return nil
	}
	if patience > 0 {
		_ = syscall.Kill(r.leader, powerOffSignal) // it may have gone down by itself
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-r.done:
		case <-t.C:
		}
	}
	r.kill()
	g.mu.Lock()
	g.running = nil
	g.mu.Unlock()
	groups, err := groupsLike(g.label())
	return errors.Join(err, removeGroups(groups), ip("netns del "+g.label()))
}

func removeGroups(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// Erase removes the disk of a guest that is off.
func (g *Guest) Erase() error { return os.RemoveAll(g.opts.Dir) }
