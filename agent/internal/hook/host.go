package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Where the hook is looked for when the configuration names none.
const (
	OperatorPath = "/opt/bigfleet/bootstrap"
	PackagePath  = "/usr/lib/bigfleet-agent/bootstrap"
)

// keepRuns is how many run directories stay, for Attempts and for whoever looks
// into a failure.
const keepRuns = 16

// Host runs the hook of this host. Its methods may be called from many
// goroutines, for one command at a time.
type Host struct {
	Path       string // the hook; "" looks at OperatorPath, then PackagePath
	RuntimeDir string // on tmpfs, private to root
	Token      string // cut out of what a hook prints
	Program    string // bigfleet-agent, for hooks; "" when it is in no file
	Runner     Runner
	Log        *slog.Logger

	warnOnce sync.Once
}

// Find returns the hook that would run.
func (h *Host) Find() (string, error) {
	paths := []string{OperatorPath, PackagePath}
	if h.Path != "" {
		paths = []string{h.Path}
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("hook: %s does not exist", path))
			continue
		case err != nil:
			return "", fmt.Errorf("hook: %w: %w", ErrNotStarted, err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return "", fmt.Errorf("hook: %s is not an executable file (chmod 0755 it)", path)
		case info.Mode().Perm()&0o002 != 0:
			return "", fmt.Errorf("hook: everybody may write %s, and it runs as root (chmod 0755 it)", path)
		}
		return path, nil
	}
	return "", fmt.Errorf("%w: install the bigfleet-agent package, or put the cluster's hook at %s", errors.Join(errs...), paths[0])
}

// Run starts the hook and waits for it. The error, if any, is fit for an ack: it
// has the last lines of the hook's standard error and no secret. When ctx ends
// everything the hook started is killed, but see ErrStopping. ErrKilled says that
// there is no result.
func (h *Host) Run(ctx context.Context, call Call) error {
	path, err := h.Find()
	if err != nil {
		return err
	}
	job := h.job(call)
	job.Path = path
	if err := h.prepare(&job, call); err != nil {
		return fmt.Errorf("hook %s: %w: prepare %s: %w", call.Verb, ErrNotStarted, job.Dir, err)
	}
	if err := h.Runner.Start(job); err != nil {
		return errors.Join(fmt.Errorf("hook %s: %w: start %s: %w", call.Verb, ErrNotStarted, path, err), os.RemoveAll(job.Dir))
	}
	err = h.follow(ctx, job, call)
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("hook %s: %w (%s)", call.Verb, ErrKilled, job.Dir)
	}
	return err
}

// Attempts returns the attempt of the last run of call's verb and command since
// the host booted, 0 when there was none. It is for an agent whose journal was
// lost: the runtime directory remembers the last few runs too.
func (h *Host) Attempts(call Call) (int, error) {
	entries, err := os.ReadDir(h.runsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	last := 0
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), runPrefix(call))
		if n, err := strconv.Atoi(number); ours && err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

// Resume waits for a run that an earlier agent began. ErrLost says that its
// result cannot be known; nothing of it is alive then.
func (h *Host) Resume(ctx context.Context, call Call) error {
	job := h.job(call)
	if _, err := os.Stat(job.Dir); err != nil {
		// Somebody removed it. The run itself may go on.
		return errors.Join(ErrLost, h.Runner.Stop(job, politeness, true))
	}
	// The blob may be known from the earlier run only; it is needed to cut it
	// out of the output.
	if blob, err := os.ReadFile(blobPath(job)); err == nil && len(call.Command.Blob) == 0 {
		call.Command.Blob = blob
	}
	return h.follow(ctx, job, call)
}

func (h *Host) follow(ctx context.Context, job Job, call Call) error {
	waitCtx, patience := ctx, func() time.Duration { return politeness }
	if end, limited := ctx.Deadline(); limited {
		// The hook is asked to end so early that it can be killed at the
		// deadline: the provider does not wait for the report much longer.
		ask := end.Add(-min(politeness, time.Until(end)/4))
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithDeadlineCause(ctx, ask, ErrDeadline)
		defer cancel()
		patience = func() time.Duration { return min(politeness, time.Until(end)) }
	}
	status, err := h.Runner.Wait(waitCtx, job)
	if errors.Is(err, ErrStopping) {
		return err
	}
	if err == nil && status == 0 {
		h.clean(job, "")
		return nil
	}
	// The run failed: what it started must not go on beside another attempt.
	// What left the group of a hook that ended by itself was left on purpose.
	ended := err == nil
	switch {
	case ended:
		err = fmt.Errorf("hook %s: exit status %d", call.Verb, status)
	case !errors.Is(err, ErrLost):
		err = fmt.Errorf("hook %s: killed: %w", call.Verb, err)
	}
	stopErr := h.Runner.Stop(job, patience(), !ended)
	text, textErr := explain(job, NewRedactor(h.Token, call.Command.Blob))
	if text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	h.clean(job, text)
	return errors.Join(err, stopErr, textErr)
}

// clean removes what may hold the blob: its file, and what the hook printed, of
// which text stays. An agent that dies before it journalled the result finds
// that again. It decides nothing about the result: the host is as it is.
func (h *Host) clean(job Job, text string) {
	if err := errors.Join(forget(job, text), removeBlob(job)); err != nil {
		h.Log.Error("what a hook's run left cannot be cleaned", "dir", job.Dir, "error", err)
	}
}

func (h *Host) runsDir() string { return filepath.Join(h.RuntimeDir, "runs") }

func (h *Host) job(call Call) Job {
	return Job{
		Dir:  filepath.Join(h.runsDir(), runPrefix(call)+strconv.Itoa(call.Attempt)),
		Verb: call.Verb, Env: h.environment(call), Token: h.Token,
	}
}

// runPrefix is the name of the call's run directory without the attempt.
func runPrefix(call Call) string {
	sum := sha256.Sum256([]byte(call.Command.CommandID))
	return hex.EncodeToString(sum[:8]) + "-" + string(call.Verb) + "-"
}

// prepare makes the run's directory anew.
func (h *Host) prepare(job *Job, call Call) error {
	if err := os.MkdirAll(h.runsDir(), 0o700); err != nil {
		return err
	}
	h.warnOnce.Do(func() {
		if ok, err := OnTmpfs(h.RuntimeDir); err != nil || !ok {
			h.Log.Warn("the runtime directory is not on tmpfs: the blob touches a disk", "dir", h.RuntimeDir, "error", err)
		}
	})
	if err := h.prune(); err != nil {
		return err
	}
	if err := os.RemoveAll(job.Dir); err != nil {
		return err
	}
	if err := os.Mkdir(job.Dir, 0o700); err != nil {
		return err
	}
	if call.Verb != Configure {
		return nil
	}
	job.Stdin = blobPath(*job)
	job.Env = append(job.Env, "BIGFLEET_BLOB_FILE="+job.Stdin)
	if err := os.WriteFile(job.Stdin, call.Command.Blob, 0o600); err != nil {
		return errors.Join(err, os.RemoveAll(job.Dir)) // it may hold a part of the blob
	}
	return nil
}

// prune ends what may still run, though the journal knows nothing of it or it
// was only a check: there is one run at a time and it is about to begin. It
// removes every blob and all but the newest directories.
func (h *Host) prune() error {
	entries, err := os.ReadDir(h.runsDir())
	if err != nil {
		return err
	}
	type run struct {
		dir string
		at  time.Time
	}
	var runs []run
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		runs = append(runs, run{filepath.Join(h.runsDir(), e.Name()), info.ModTime()})
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.dir, b.dir)) })
	var errs []error
	for i, r := range runs {
		job := Job{Dir: r.dir}
		if !h.Runner.Ended(job) {
			errs = append(errs, h.Runner.Stop(job, politeness, true))
		}
		errs = append(errs, removeBlob(job))
		if i >= keepRuns-1 {
			errs = append(errs, os.RemoveAll(r.dir))
		}
	}
	return errors.Join(errs...)
}

func blobPath(job Job) string { return filepath.Join(job.Dir, "blob") }

// scratchPath is where a hook puts what it makes of the blob, should it be killed.
func scratchPath(job Job) string { return blobPath(job) + ".d" }

func removeBlob(job Job) error {
	err := os.Remove(blobPath(job))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, os.RemoveAll(scratchPath(job))); err != nil {
		return fmt.Errorf("what holds the blob stays: %w", err)
	}
	return nil
}

// environment is everything that a hook sees; the agent's own environment names
// the service manager's sockets, which are not a hook's business.
func (h *Host) environment(call Call) []string {
	env := []string{
		"BIGFLEET_CLUSTER_ID=" + call.Command.ClusterID,
		"BIGFLEET_MACHINE_ID=" + call.Command.MachineID,
		"BIGFLEET_NODE_NAME=" + call.Command.NodeName,
		"BIGFLEET_PROVIDER_ID=" + call.Command.ProviderID,
		"BIGFLEET_GRACE_SECONDS=" + strconv.FormatInt(call.Command.GraceSeconds, 10),
		"BIGFLEET_COMMAND_ID=" + call.Command.CommandID,
		"BIGFLEET_ATTEMPT=" + strconv.Itoa(call.Attempt),
		"HOME=/root",
		"LANG=C.UTF-8",
		"PATH=" + searchPath(),
	}
	if h.Program != "" {
		env = append(env, "BIGFLEET_AGENT="+h.Program)
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func searchPath() string {
	return cmp.Or(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

// OnTmpfs tells whether dir, or the nearest parent that exists, is in memory.
func OnTmpfs(dir string) (bool, error) {
	var fsys unix.Statfs_t
	err := unix.Statfs(dir, &fsys)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &fsys)
	}
	if err != nil {
		return false, err
	}
	return fsys.Type == unix.TMPFS_MAGIC || fsys.Type == unix.RAMFS_MAGIC, nil
}
