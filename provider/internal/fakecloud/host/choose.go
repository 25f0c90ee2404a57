package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"bigfleet-providers/provider/internal/fakecloud"
)

// Mode says what stands for the guests of a fake cloud.
type Mode string

// The modes.
const (
	InProc  Mode = "inproc"  // agents are goroutines; cheap enough for thousands
	Process Mode = "process" // each host is a directory tree with the real agent binary
	Boot    Mode = "nspawn"  // each host is a Debian that boots in a container
	None    Mode = "none"    // servers run, nobody is inside
)

// Modes lists the modes.
func Modes() []Mode { return []Mode{InProc, Process, Boot, None} }

// Choice is what a program's flags say about hosts.
type Choice struct {
	Mode Mode
	// Dir holds the hosts' trees in Process mode, their disks in Boot mode; "" is
	// a temporary folder that goes when the hosts are closed.
	Dir string
	// DebianRoot is what hosts boot from in Boot mode.
	DebianRoot string
	// Agent is the agent binary in Process mode; "" is bigfleet-agent beside the
	// running program.
	Agent string
	// Dial is the network of InProc hosts; nil is this machine's.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Log  *slog.Logger
}

// Choose makes the hosts of a choice; nil for None.
func Choose(c Choice) (fakecloud.Hosts, error) {
	switch c.Mode {
	case None:
		return nil, nil
	case InProc:
		return NewInProcess(InProcessOptions{Log: c.Log, Dial: c.Dial}), nil
	case Process:
		return chooseProcess(c)
	case Boot:
		return chooseNspawn(c)
	default:
		return nil, fmt.Errorf("hosts: %q is unknown, want one of %q", c.Mode, Modes())
	}
}

func chooseProcess(c Choice) (fakecloud.Hosts, error) {
	if c.Agent == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the agent beside this program: %w", err)
		}
		c.Agent = filepath.Join(filepath.Dir(self), "bigfleet-agent")
	}
	temp, err := c.makeDir()
	if err != nil {
		return nil, err
	}
	hosts, err := NewProcess(ProcessOptions{Dir: c.Dir, AgentBinary: c.Agent, Log: c.Log})
	if err != nil {
		if temp != "" {
			err = errors.Join(err, os.RemoveAll(temp))
		}
		return nil, err
	}
	if temp != "" {
		return &temporary{Hosts: hosts, dir: temp, log: c.Log}, nil
	}
	return hosts, nil
}

// chooseNspawn returns an *Nspawn, which the caller has to Attach to its cloud.
func chooseNspawn(c Choice) (fakecloud.Hosts, error) {
	temp, err := c.makeDir()
	if err != nil {
		return nil, err
	}
	removeTemp := func() error {
		if temp == "" {
			return nil
		}
		return os.RemoveAll(temp)
	}
	hosts, err := NewNspawn(NspawnOptions{Dir: c.Dir, Layers: []string{c.DebianRoot}, Log: c.Log})
	if err != nil {
		return nil, errors.Join(err, removeTemp())
	}
	hosts.atClose = func() {
		hosts.closeNetwork()
		if err := removeTemp(); err != nil {
			hosts.log.Warn("the hosts' disks could not be removed", "dir", temp, "error", err)
		}
	}
	return hosts, nil
}

// makeDir makes the folder of the choice and returns its path if it is a
// temporary one.
func (c *Choice) makeDir() (temp string, err error) {
	if c.Dir != "" {
		err = os.MkdirAll(c.Dir, 0o700)
	} else {
		temp, err = os.MkdirTemp("", "bigfleet-hosts-")
		c.Dir = temp
	}
	if err != nil {
		return "", fmt.Errorf("hosts: %w", err)
	}
	return temp, nil
}

// temporary are hosts whose trees go with them.
type temporary struct {
	fakecloud.Hosts
	dir string
	log *slog.Logger
}

// Close implements fakecloud.Hosts.
func (t *temporary) Close() {
	t.Hosts.Close()
	if err := os.RemoveAll(t.dir); err != nil && t.log != nil {
		t.log.Warn("the hosts' trees could not be removed", "dir", t.dir, "error", err.Error())
	}
}
