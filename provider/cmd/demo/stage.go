package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// logLines is how much of each log is shown after a failure.
const logLines = 15

// maxMachines is what still fits on a terminal.
const maxMachines = 20

// What the programs and the shard are told.
const (
	providerName = "demo"
	zone         = "fr-par-1"
	shardID      = "demo-shard"
	stateFile    = "state.db"
	// The key that bin/fakecloud knows; it opens nothing else.
	accessKey = "SCWFAKE0FAKE0FAKE0FA"
	secretKey = "11111111-1111-4111-8111-111111111111"
	projectID = "22222222-2222-4222-8222-222222222222"
)

// The substrates. An install takes minutes, so that time runs faster for
// dedicated servers.
const (
	instances    = "instances"
	elasticMetal = "elastic-metal"
	metalScale   = "0.01"
)

// options are the command line.
type options struct {
	bin       string
	substrate string
	machines  int
	keep      bool
	timeout   time.Duration
	out       *os.File
	errs      *os.File // what went wrong
}

// check judges the command line; args are those that are no flags.
func (o options) check(args []string) error {
	var errs []error
	if len(args) > 0 {
		errs = append(errs, fmt.Errorf("argument %q: demo takes flags only, see --help", args[0]))
	}
	if o.substrate != "" && o.substrate != instances && o.substrate != elasticMetal {
		errs = append(errs, fmt.Errorf("--substrate: %q, want %s or %s", o.substrate, instances, elasticMetal))
	}
	if o.machines < 1 || o.machines > maxMachines {
		errs = append(errs, fmt.Errorf("--machines: %d, want 1 to %d", o.machines, maxMachines))
	}
	if o.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %s, want more than 0", o.timeout))
	}
	return errors.Join(errs...)
}

// stage holds the programs of one play and all that they share. strike ends
// them.
type stage struct {
	bin    string
	metal  bool   // the machines are dedicated servers
	dir    string // everything that this play writes
	secret string // the bootstrap secret; only ever in an environment
	certs  *certificates

	cloudAddr, addr, channelAddr, metricsAddr string

	cloud    *process
	provider *process // nil while none is meant to run
}

// perform runs the play and takes down everything that it started, however it
// ends. The outcome has been shown when it returns.
func perform(ctx context.Context, o options) (err error) {
	ctx, unwatched := context.WithCancel(ctx)
	defer unwatched()
	screen := newScreen(o.out, o.errs)
	screen.gone = unwatched
	defer screen.close()
	st, err := build(o)
	if err != nil {
		screen.failed(err)
		return err
	}
	interrupted := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("the play took longer than %s (--timeout)", o.timeout))
	defer cancel()

	p := &play{stage: st, screen: screen, want: o.machines}
	err = p.run(ctx)
	broken := err != nil && interrupted.Err() == nil
	if err != nil && !broken {
		err = errors.New("interrupted; everything that was started is stopped")
	}
	if left := errors.Join(p.leave(), st.strike()); left != nil {
		err, broken = errors.Join(err, left), true
	}
	if !broken && !o.keep {
		err = errors.Join(err, os.RemoveAll(st.dir))
	}
	if err != nil {
		screen.failed(err)
	}
	if broken {
		for _, log := range st.logs() {
			screen.complain("\n   the end of %s:\n%s\n\n", log, tail(log, logLines))
		}
		screen.complain("   logs, state file and certificates are kept, since it failed; remove them when done: %s\n", st.dir)
	} else if o.keep {
		screen.say("logs, state file and certificates: %s", st.dir)
	}
	return err
}

// build prepares a stage; nothing runs on it yet.
func build(o options) (*stage, error) {
	bin, err := filepath.Abs(o.bin)
	if o.bin == "" {
		bin, err = os.Executable()
		bin = filepath.Dir(bin)
	}
	if err != nil {
		return nil, fmt.Errorf("--bin: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("bootstrap secret: %w", err)
	}
	addrs, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bigfleet-demo-")
	if err != nil {
		return nil, err
	}
	certs, err := makeCertificates(dir, shardID)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &stage{
		bin: bin, metal: o.substrate == elasticMetal, dir: dir, secret: hex.EncodeToString(key), certs: certs,
		cloudAddr: addrs[0], addr: addrs[1], channelAddr: addrs[2], metricsAddr: addrs[3],
	}, nil
}

// startCloud starts the fake cloud.
func (s *stage) startCloud() error {
	hosts := s.path("hosts")
	if err := os.Mkdir(hosts, 0o700); err != nil {
		return err
	}
	scale := "1"
	if s.metal {
		scale = metalScale
	}
	var err error
	s.cloud, err = s.launch("fakecloud", plainEnvironment(),
		"--addr", s.cloudAddr,
		"--scale", scale,
		"--hosts", "process",
		"--hosts-dir", hosts,
		"--agent", filepath.Join(s.bin, "bigfleet-agent"))
	return err
}

// startProvider starts the provider, each time on the same state file.
func (s *stage) startProvider(slots int) error {
	// A boot takes the fake as long as the default pause between two looks at it:
	// what would be seen at once, or only after another, would be chance.
	substrate := []string{"--substrate", instances, "--image", "debian_bookworm", "--poll-interval", "1s"}
	if s.metal {
		substrate = []string{"--substrate", elasticMetal, "--image", "Debian 12", "--poll-interval", "100ms", "--settle-window", "2s"}
	}
	var err error
	s.provider, err = s.launch("scaleway",
		append(plainEnvironment(),
			"SCW_API_URL=http://"+s.cloudAddr,
			"SCW_ACCESS_KEY="+accessKey,
			"SCW_SECRET_KEY="+secretKey,
			"SCW_DEFAULT_PROJECT_ID="+projectID,
			"BIGFLEET_BOOTSTRAP_SECRET="+s.secret),
		append([]string{"--addr", s.addr,
			"--metrics-addr", s.metricsAddr,
			"--provider", providerName,
			"--zone", zone,
			"--scaleway-backend", "scaleway",
			"--agent-install", "image",
			"--seed-count", strconv.Itoa(slots),
			"--state", s.path(stateFile),
			"--tls-cert", s.certs.serverCrt,
			"--tls-key", s.certs.serverKey,
			"--tls-ca", s.certs.ca,
			"--bootstrap-addr", s.channelAddr,
			"--bootstrap-endpoint", "https://" + s.channelAddr,
			"--bootstrap-tls-cert", s.certs.serverCrt,
			"--bootstrap-tls-key", s.certs.serverKey,
			"--bootstrap-ca", s.certs.ca}, substrate...)...)
	return err
}

func (s *stage) launch(name string, env []string, args ...string) (*process, error) {
	return launch(name, filepath.Join(s.bin, name), s.path(name+".log"), env, args)
}

// path names a file of this play.
func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// check returns an error when a program that should run has exited.
func (s *stage) check() error {
	for _, p := range s.running() {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// running lists the programs that should run, in the order of their start.
func (s *stage) running() []*process {
	var list []*process
	for _, p := range []*process{s.cloud, s.provider} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// killProvider is kill -9.
func (s *stage) killProvider() {
	s.provider.kill()
	s.provider = nil
}

// strike stops what runs, the provider first so that it can take its leave of
// the cloud, and then ends whatever hosts a broken fake cloud left behind.
func (s *stage) strike() error {
	var errs []error
	if s.provider != nil {
		errs = append(errs, s.provider.stop())
	}
	if s.cloud != nil {
		errs = append(errs, s.cloud.stop())
	}
	s.provider, s.cloud = nil, nil
	return errors.Join(append(errs, s.killHosts())...)
}

// killHosts ends the hosts that a fake cloud left behind when it died, and
// returns an error if there were any.
func (s *stage) killHosts() error {
	killed := map[int]bool{}
	for deadline := time.Now().Add(stopGrace); ; time.Sleep(10 * time.Millisecond) {
		left, err := s.hosts()
		switch {
		case err != nil:
			return err
		case len(left) == 0 && len(killed) == 0:
			return nil
		case len(left) == 0:
			return fmt.Errorf("%d processes of hosts had been left behind by the fake cloud; they were killed", len(killed))
		case time.Now().After(deadline):
			return fmt.Errorf("processes of hosts are still there, %s after SIGKILL: %v", stopGrace, left)
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill the process of a host, pid %d: %w", pid, err)
			}
			killed[pid] = true
		}
	}
}

// hosts lists the processes that stand for the cloud's servers.
func (s *stage) hosts() ([]int, error) { return hostProcesses(s.path("hosts")) }

// logs lists the log files that say something.
func (s *stage) logs() []string {
	var found []string
	for _, name := range []string{"fakecloud.log", "scaleway.log"} {
		if info, err := os.Stat(s.path(name)); err == nil && info.Size() > 0 {
			found = append(found, s.path(name))
		}
	}
	return found
}
