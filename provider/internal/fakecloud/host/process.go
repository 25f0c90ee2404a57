package host

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bigfleet-providers/agent"
	"bigfleet-providers/provider/internal/fakecloud"
)

// ProcessOptions set up NewProcess.
type ProcessOptions struct {
	// Dir holds a directory for each server. It must exist; what the hosts make
	// in it stays after Close, except for servers that are gone.
	Dir string
	// AgentBinary is the bigfleet-agent that runs on every host.
	AgentBinary string
	// HookPath is the hook of every host. Empty: a host's own
	// /opt/bigfleet/bootstrap, if its user data brings one, else a simple hook
	// that runs a blob beginning with #! under /bin/sh, takes any other blob for
	// joined, and records the runs in the tree, see Hosts.Tree. Such a blob runs
	// on this machine, as this user, and is not confined to the tree.
	HookPath string
	// Env is added to the agents' environment, which is otherwise minimal.
	Env []string
	// Log receives boots, halts and failures; nil discards them. The agents' own
	// lines go to a file in the tree.
	Log *slog.Logger
	// Delay is how long a guest takes from "running" to the start of the agent;
	// nil is no time.
	Delay func(fakecloud.Guest) time.Duration
}

// Files of a host's tree that are for tests and people; the rest is as the
// agent's package has it.
const (
	AgentLog = "var/log/bigfleet-agent.log" // with AgentLog + ".1" before it
	HookLog  = "var/log/hook.log"           // a line for each run: verb, command id, attempt, cluster id
	Joined   = "var/lib/cluster/joined"     // the cluster's id while the host is a member
)

const (
	marker      = "BIGFLEET_FAKE_HOST"                                                // environment of everything that runs on a host
	enabledPath = "etc/systemd/system/multi-user.target.wants/bigfleet-agent.service" // there when the agent starts at boot
	hookPath    = "usr/lib/bigfleet-agent/bootstrap"

	maxLogBytes  = 1 << 20         // of AgentLog and HookLog, twice
	politeness   = 2 * time.Second // between SIGTERM and SIGKILL
	restartPause = time.Second     // before an agent that ended is started again
	killWait     = 5 * time.Second // for killed processes to be gone
)

//go:embed hook.sh
var hookScript string

// NewProcess returns hosts that run the real agent binary. It fails when the
// options cannot work.
func NewProcess(opts ProcessOptions) (*Hosts, error) {
	var errs []error
	if info, err := os.Stat(opts.Dir); err != nil {
		errs = append(errs, fmt.Errorf("fake hosts: Dir: %w", err))
	} else if !info.IsDir() {
		errs = append(errs, fmt.Errorf("fake hosts: Dir: %s is not a directory", opts.Dir))
	}
	for _, p := range []struct {
		field string
		path  *string
	}{{"Dir", &opts.Dir}, {"AgentBinary", &opts.AgentBinary}, {"HookPath", &opts.HookPath}} {
		if *p.path == "" && p.field == "HookPath" {
			continue
		}
		abs, err := filepath.Abs(*p.path)
		if err == nil && p.field != "Dir" {
			_, err = exec.LookPath(abs)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("fake hosts: %s: %w", p.field, err))
		}
		*p.path = abs
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h := newHosts(opts.Log, opts.Delay)
	h.newMachine = func(serverID string) machine {
		return &processes{opts: opts, dir: treeOf(opts.Dir, serverID), log: h.log.With("server_id", serverID)}
	}
	h.tree = func(serverID string) string { return treeOf(opts.Dir, serverID) }
	return h, nil
}

// treeOf keeps a server id that is no plain name inside dir.
func treeOf(dir, serverID string) string {
	return filepath.Join(dir, strings.NewReplacer("/", "_", ".", "_").Replace(serverID))
}

// processes is a machine with a directory tree and real processes.
type processes struct {
	opts ProcessOptions
	dir  string
	log  *slog.Logger
}

func (m *processes) up(ctx context.Context, g fakecloud.Guest) {
	if err := m.boot(ctx, g); err != nil {
		m.log.Error("the host does not boot", "error", err)
	}
	<-ctx.Done()
	if err := m.powerOff(); err != nil {
		m.log.Error("processes of the host are left", "error", err)
	}
}

// boot returns when ctx ended, or at once when there is nothing to run.
func (m *processes) boot(ctx context.Context, g fakecloud.Guest) error {
	_, err := os.Stat(m.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := m.firstBoot(g); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		// A fake cloud that was killed had no time to power its hosts off.
		if err := m.powerOff(); err != nil {
			return err
		}
	}
	// /run is in memory on a real host.
	if err := os.RemoveAll(filepath.Join(m.dir, "run")); err != nil {
		return err
	}
	for _, dir := range []string{"run", "tmp", "var/log", "var/lib/cluster"} {
		if err := os.MkdirAll(filepath.Join(m.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, enabledPath)); err != nil {
		return nil // firstBoot said why
	}
	log, err := openLog(filepath.Join(m.dir, AgentLog), maxLogBytes)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		// As the unit's Restart=always.
		err := m.runAgent(ctx, log)
		if ctx.Err() != nil {
			return nil
		}
		m.log.Warn("the agent ended and is started again", "error", err)
		if !wait(ctx, restartPause) {
			return nil
		}
	}
}

// firstBoot makes the tree and acts on the user data.
func (m *processes) firstBoot(g fakecloud.Guest) error {
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	s, seedErr := readSeed(g.UserData)
	report(m.log, s, seedErr)
	for _, f := range s.files {
		if err := write(root, f); err != nil {
			return err
		}
	}
	if seedErr != nil {
		return nil
	}
	hook := strings.NewReplacer("@ROOT@", quote(m.dir), "@HOOK@", quote(m.opts.HookPath), "@LIMIT@", strconv.Itoa(maxLogBytes)).Replace(hookScript)
	config, err := m.agentConfig(&s)
	if err != nil {
		return err
	}
	for _, f := range []file{
		{path: "/" + hookPath, mode: 0o755, content: []byte(hook)},
		{path: agent.DefaultConfigPath, mode: 0o600, content: config},
		{path: "/" + enabledPath, mode: 0o644},
	} {
		if err := write(root, f); err != nil {
			return err
		}
	}
	return nil
}

// agentConfig points what the user data leaves to the package into the tree.
func (m *processes) agentConfig(s *seed) ([]byte, error) {
	raw, _ := s.content(agent.DefaultConfigPath)
	var config map[string]any
	if json.Unmarshal(raw, &config) != nil {
		return nil, fmt.Errorf("%s is not a JSON object", agent.DefaultConfigPath)
	}
	config["hook"] = filepath.Join(m.dir, hookPath)
	config["state_dir"] = filepath.Join(m.dir, agent.DefaultStateDir)
	config["runtime_dir"] = filepath.Join(m.dir, agent.DefaultRuntimeDir)
	return json.MarshalIndent(config, "", "  ")
}

// write puts a file into the tree. root keeps it there, whatever its path says.
func write(root *os.Root, f file) error {
	name := strings.TrimPrefix(f.path, "/")
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if f.append {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	out, err := root.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.content)
	return errors.Join(err, out.Chmod(f.mode), out.Close())
}

// runAgent runs one agent process until it ends, or until ctx does and the
// agent was told so.
func (m *processes) runAgent(ctx context.Context, log io.Writer) error {
	// Pdeathsig is bound to the thread that forks, not to the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, m.opts.AgentBinary, "--config", filepath.Join(m.dir, agent.DefaultConfigPath))
	cmd.Dir = m.dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + m.dir, "TMPDIR=" + filepath.Join(m.dir, "tmp"),
		marker + "=" + m.dir,
	}, m.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = politeness
	return cmd.Run()
}

// powerOff kills whatever runs on the host. A hook is in a process group of its
// own and outlives its agent, but no host.
func (m *processes) powerOff() error {
	for deadline := time.Now().Add(killWait); ; time.Sleep(10 * time.Millisecond) {
		n, err := killMarked(marker+"="+m.dir, m.dir)
		if n == 0 || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s are alive after SIGKILL", n, m.dir)
		}
	}
}

func (m *processes) erase() {
	if err := os.RemoveAll(m.dir); err != nil {
		m.log.Error("the host's tree stays", "error", err)
	}
}

// quote makes a word of s for sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
