package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bigfleet-providers/agent/internal/systemd"
)

const (
	managerLook = 20               // a run's unit is looked at in every so many looks at its status
	managerWait = 20 * time.Second // for an answer of the service manager
	releaseWait = 5                // looks at a unit that is about to end well
)

// Manager is what Units needs of the service manager; systemd.Units is one.
type Manager interface {
	Start(context.Context, systemd.Service) error
	Running(ctx context.Context, name string) (bool, error)
	Release(ctx context.Context, name string) error
	Stop(ctx context.Context, name string, patience time.Duration) error
}

// Units runs hooks as transient units of the service manager, each in a control
// group of its own. All methods may be called from many goroutines.
type Units struct {
	Manager Manager
	// Supervisor is the program that calls Supervise with the argument that is
	// added to it, the run's directory.
	Supervisor []string
	// Agent is the agent's own unit. It is stopped before its hooks, or it
	// would report those that a shutdown ends.
	Agent string
	Log   *slog.Logger
}

// UnitName is the name of the job's unit.
func UnitName(job Job) string { return "bigfleet-hook-" + filepath.Base(job.Dir) + ".service" }

// Start implements Runner.
func (u *Units) Start(job Job) error {
	body, err := json.Marshal(job)
	if err != nil {
		return err
	}
	if err := os.WriteFile(reservedPath(job), []byte("          "), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(unitMark(job), []byte(UnitName(job)+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(jobPath(job.Dir), body, 0o600); err != nil {
		return err
	}
	service := systemd.Service{
		Name:        UnitName(job),
		Description: fmt.Sprintf("BigFleet hook: %s", job.Verb),
		Exec:        append(slices.Clip(u.Supervisor), job.Dir),
		Before:      u.Agent,
		StopTimeout: politeness,
	}
	ctx, cancel := context.WithTimeout(context.Background(), managerWait)
	defer cancel()
	err = u.Manager.Start(ctx, service)
	if errors.Is(err, systemd.ErrExists) {
		// Of a readiness check before this one, or of a run whose directory
		// somebody removed.
		if err = u.Manager.Stop(ctx, service.Name, politeness); err == nil {
			err = u.Manager.Start(ctx, service)
		}
	}
	if err == nil {
		return nil
	}
	// Without the manager's answer it may have been started all the same.
	if ours, claimErr := claim(job.Dir); claimErr == nil && !ours {
		u.Log.Warn("the hook runs although its unit's start failed", "unit", service.Name, "error", err)
		return nil
	}
	return err
}

// Wait implements Runner.
func (u *Units) Wait(ctx context.Context, job Job) (int, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	claimed := false
	for n := 0; ; n++ {
		running := true
		if n%managerLook == 0 {
			running = u.running(ctx, job)
		}
		if status, ok, err := readStatus(job); ok || err != nil {
			if status == 0 && err == nil {
				u.release(ctx, job)
			}
			return status, err
		}
		if !running {
			if claimed {
				return 0, ErrLost
			}
			// A supervisor that comes later finds nothing to do. One that came
			// meanwhile is seen by another look.
			if _, err := claim(job.Dir); err != nil {
				return 0, err
			}
			claimed, n = true, -1
			continue
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// running tells whether the job's supervisor runs. A manager that cannot be
// asked is asked again later: what it runs goes on.
func (u *Units) running(ctx context.Context, job Job) bool {
	ctx, cancel := context.WithTimeout(ctx, managerWait)
	defer cancel()
	running, err := u.Manager.Running(ctx, UnitName(job))
	if err != nil {
		if ctx.Err() == nil {
			u.Log.Warn("it cannot be told whether the hook runs", "unit", UnitName(job), "error", err)
		}
		return true
	}
	return running
}

// release gives the unit of a successful job back unless a daemon lives in it.
// The supervisor needs a moment to end.
func (u *Units) release(ctx context.Context, job Job) {
	ctx, cancel := context.WithTimeout(ctx, managerWait)
	defer cancel()
	for range releaseWait {
		running, err := u.Manager.Running(ctx, UnitName(job))
		if err == nil && !running {
			err = u.Manager.Release(ctx, UnitName(job))
		}
		if err != nil {
			u.Log.Warn("the unit of a successful hook stays loaded", "unit", UnitName(job), "error", err)
		}
		if err != nil || !running || !pause(ctx, look/2) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Ended implements Runner.
func (u *Units) Ended(job Job) bool { return ended(job) }

// Stop implements Runner. Nothing can leave a control group, so that there are
// no strays.
func (u *Units) Stop(job Job, patience time.Duration, _ bool) error {
	if _, err := claim(job.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), managerWait)
	defer cancel()
	return u.Manager.Stop(ctx, UnitName(job), patience)
}

// jobPath is the file that says what to run. Whoever removes it owns the run.
func jobPath(dir string) string { return filepath.Join(dir, "job") }

// claim takes the run in dir, and tells whether it was free.
func claim(dir string) (bool, error) {
	err := os.Remove(jobPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
