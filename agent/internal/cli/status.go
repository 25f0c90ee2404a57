package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"bigfleet-providers/agent"
	"bigfleet-providers/agent/internal/plain"
)

// status prints what the running agent keeps in its status file.
func status(path string, out io.Writer) error {
	cfg, err := agent.LoadConfig(path)
	if err != nil {
		return err
	}
	s, err := agent.ReadStatus(cfg.StatusFile())
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no agent has run since the host booted (systemctl status bigfleet-agent)")
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, render(s, time.Now(), alive(s.PID)))
	return err
}

// alive tells whether the process exists; one of another user does too.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return pid > 0 && (err == nil || errors.Is(err, syscall.EPERM))
}

func render(s agent.Status, now time.Time, alive bool) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", name+":", plain.Line(fmt.Sprintf(format, args...)))
	}
	row("agent", "version %s, pid %d", s.Version, s.PID)
	row("machine", "%s", s.MachineID)
	row("provider", "%s", s.Endpoint)
	if alive {
		row("doing", "%s, since %s", s.Doing, ago(now, s.Since))
	} else {
		row("doing", "NOT RUNNING; last: %s (start it: systemctl start bigfleet-agent)", s.Doing)
	}
	if s.LastContact.IsZero() {
		row("last contact", "never")
	} else {
		row("last contact", "%s", ago(now, s.LastContact))
	}
	if s.LastError != "" {
		row("last error", "%s", s.LastError)
	}
	for _, c := range s.Commands {
		row("command", "%s %s for cluster %s, attempt %d, started %s: %s", c.Kind, c.CommandID, c.ClusterID, c.Attempt, ago(now, c.Started), outcome(c, now))
	}
	return b.String()
}

func outcome(c agent.CommandStatus, now time.Time) string {
	var text string
	switch {
	case c.Finished.IsZero():
		return fmt.Sprintf("in work, step %s, %s left", c.Step, c.Deadline.Sub(now).Round(time.Second))
	case c.OK:
		text = "ok"
	default:
		text = "FAILED: " + c.Error
	}
	if !c.Settled {
		text += " (the provider does not have this result yet)"
	}
	return text
}

func ago(now, t time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), now.Sub(t).Round(time.Second))
}
