package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

const (
	stopLook = 50 * time.Millisecond // how often a unit that is being stopped is looked at
	killWait = 3 * time.Second       // for what was killed to be gone
	dialWait = 5 * time.Second       // for the manager to take a connection
)

// ErrExists says that a unit of that name is loaded.
var ErrExists = errors.New("a unit of that name exists")

// Service is a transient service. It has no environment and no secret: anybody
// on the host may read the properties of a unit.
type Service struct {
	Name        string // with .service
	Description string
	Exec        []string // absolute path and arguments
	// Before names a unit that is stopped before this one.
	Before string
	// StopTimeout is the time between SIGTERM and SIGKILL when somebody else
	// than Stop stops it, such as a shutdown.
	StopTimeout time.Duration
}

// Units starts, watches and ends transient services over the manager's own
// socket, so that no D-Bus daemon is needed. Its zero value is ready; all
// methods may be called from many goroutines.
type Units struct{}

// Booted tells whether systemd is this host's manager, see sd_booted(3).
func Booted() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// Check tells whether the manager answers.
func (u *Units) Check(ctx context.Context) error {
	return u.with(ctx, func(c *dbus.Conn) error {
		_, err := c.SystemStateContext(ctx)
		return err
	})
}

// Start starts s and returns when the manager has accepted it.
//
// A service that succeeds keeps what it leaves running and stays active; of one
// that fails the manager ends the whole control group and forgets it.
func (u *Units) Start(ctx context.Context, s Service) error {
	properties := []dbus.Property{
		dbus.PropDescription(s.Description),
		dbus.PropExecStart(s.Exec, false),
		dbus.PropRemainAfterExit(true),
		dbus.PropBefore(s.Before),
		property("CollectMode", "inactive-or-failed"),
		property("TimeoutStopUSec", uint64(s.StopTimeout.Microseconds())),
		// The loss of one process to a lack of memory is the hook's to judge.
		property("OOMPolicy", "continue"),
		property("SyslogIdentifier", "bigfleet-hook"),
	}
	err := u.with(ctx, func(c *dbus.Conn) error {
		_, err := c.StartTransientUnitContext(ctx, s.Name, "fail", properties, nil)
		if isError(err, "org.freedesktop.systemd1.TransactionIsDestructive") {
			// The host is shutting down, which refuses every start. To report
			// that as a failure would be final; a service that the shutdown
			// ends begins again after it.
			_, err = c.StartTransientUnitContext(ctx, s.Name, "ignore-dependencies", properties, nil)
		}
		return err
	})
	if isError(err, "org.freedesktop.systemd1.UnitExists") {
		return fmt.Errorf("%s: %w", s.Name, ErrExists)
	}
	return err
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// Running tells whether the main process of the unit runs, or is about to.
func (u *Units) Running(ctx context.Context, name string) (running bool, err error) {
	err = u.with(ctx, func(c *dbus.Conn) error {
		unit, err := status(ctx, c, name)
		running = unit.JobId != 0 || !gone(unit) && unit.SubState != "exited"
		return err
	})
	return running, err
}

// Release lets go of a unit whose service succeeded and in which nothing runs
// any more. It does nothing to any other.
func (u *Units) Release(ctx context.Context, name string) error {
	return u.with(ctx, func(c *dbus.Conn) error {
		unit, err := status(ctx, c, name)
		if err != nil || unit.SubState != "exited" {
			return err
		}
		// The manager gave up the control group if it was empty at the end.
		group, err := c.GetUnitTypePropertyContext(ctx, name, "Service", "ControlGroup")
		if err != nil || group.Value.Value() != "" {
			return err
		}
		_, err = c.StopUnitContext(ctx, name, "replace", nil)
		return ignoreAbsent(err)
	})
}

// Stop ends every process of the unit: it is asked to end and, after patience,
// killed. It returns when all are gone, and at once when there is no such unit.
func (u *Units) Stop(ctx context.Context, name string, patience time.Duration) error {
	return u.with(ctx, func(c *dbus.Conn) error {
		if _, err := c.StopUnitContext(ctx, name, "replace", nil); err != nil {
			return ignoreAbsent(err)
		}
		if ended, err := ends(ctx, c, name, patience); ended || err != nil {
			return err
		}
		// It may have ended just now: whether it did decides, not this answer.
		killErr := c.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL))
		ended, err := ends(ctx, c, name, killWait)
		if err == nil && !ended {
			err = errors.Join(killErr, fmt.Errorf("of %s something is alive after SIGKILL (a process in uninterruptible sleep: look at its storage)", name))
		}
		return err
	})
}

// ends waits for the unit to be gone and tells whether it is.
func ends(ctx context.Context, c *dbus.Conn, name string, wait time.Duration) (bool, error) {
	for end := time.Now().Add(wait); ; {
		unit, err := status(ctx, c, name)
		if err != nil || gone(unit) {
			return err == nil, err
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(stopLook):
		}
	}
}

func gone(unit dbus.UnitStatus) bool {
	return unit.ActiveState == "inactive" || unit.ActiveState == "failed"
}

// status returns the state of the unit; one that does not exist is inactive.
func status(ctx context.Context, c *dbus.Conn, name string) (dbus.UnitStatus, error) {
	units, err := c.ListUnitsByNamesContext(ctx, []string{name})
	if err != nil {
		return dbus.UnitStatus{}, err
	}
	if len(units) != 1 {
		return dbus.UnitStatus{}, fmt.Errorf("systemd answers with %d units for %s", len(units), name)
	}
	return units[0], nil
}

// with calls f with a connection. One a call costs a millisecond and needs no
// care when the manager executes itself anew.
func (u *Units) with(ctx context.Context, f func(*dbus.Conn) error) error {
	// Not the caller's context, which may end at any moment: a connection that
	// closes before it is set up leaves a goroutine behind for good.
	dialCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	late := time.AfterFunc(dialWait, cancel)
	c, err := dbus.NewSystemdConnectionContext(dialCtx)
	late.Stop()
	if err != nil {
		return fmt.Errorf("systemd: connect: %w", err)
	}
	defer c.Close()
	if err := f(c); err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	return nil
}

func ignoreAbsent(err error) error {
	if isError(err, "org.freedesktop.systemd1.NoSuchUnit") {
		return nil
	}
	return err
}

func isError(err error, name string) bool {
	e, ok := errors.AsType[godbus.Error](err)
	return ok && e.Name == name
}
