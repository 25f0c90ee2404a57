package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"bigfleet-providers/shared/symlink"
)

// shownResults is how many results a Status has.
const shownResults = 5

// Status is what the status file says. It holds no secret.
type Status struct {
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	MachineID   string    `json:"machine_id"`
	Endpoint    string    `json:"endpoint"`
	Doing       string    `json:"doing"`
	Since       time.Time `json:"since"`
	LastContact time.Time `json:"last_contact,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	Updated     time.Time `json:"updated"`
	// Commands are the last ones, oldest first. One without Finished is in work.
	Commands []CommandStatus `json:"commands,omitempty"`
}

// CommandStatus is one command in a Status.
type CommandStatus struct {
	CommandID string    `json:"command_id"`
	Kind      string    `json:"kind"`
	ClusterID string    `json:"cluster_id"`
	Step      string    `json:"step"`
	Attempt   int       `json:"attempt"`
	Started   time.Time `json:"started"`
	Deadline  time.Time `json:"deadline"`
	Finished  time.Time `json:"finished,omitzero"`
	OK        bool      `json:"ok"`
	Error     string    `json:"error,omitempty"`
	Settled   bool      `json:"settled"` // the provider has the result
}

// StatusFile is where the agent with this configuration keeps its Status.
func (c *Config) StatusFile() string {
	dir := c.RuntimeDir
	if dir == "" {
		dir = DefaultRuntimeDir
	}
	return filepath.Join(dir, "status.json")
}

// ReadStatus reads the file that a running agent keeps.
func ReadStatus(path string) (Status, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return Status{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// status is the agent's own view of its Status.
type status struct {
	Status
	warned bool
}

func newStatus(cfg Config, opt Options) status {
	return status{Status: Status{
		Version: opt.Version, PID: os.Getpid(), MachineID: cfg.MachineID, Endpoint: cfg.Endpoint,
		Doing: "starting", Since: time.Now(),
	}}
}

// show publishes what the agent does now.
func (a *agent) show(doing, failure string) {
	if doing != a.status.Doing || failure != a.status.LastError {
		a.opt.Notifier.Status(oneLine(doing, failure))
	}
	if doing != a.status.Doing {
		a.status.Doing, a.status.Since = doing, time.Now()
	}
	a.status.LastError = failure
	if a.opt.StatusFile == "" {
		return
	}
	a.status.Updated = time.Now()
	a.status.Commands = nil
	records := a.journal.Records()
	for _, rec := range records[max(0, len(records)-shownResults):] {
		c := CommandStatus{
			CommandID: rec.Command.CommandID, Kind: string(rec.Command.Kind), ClusterID: rec.Command.ClusterID,
			Step: rec.Step, Attempt: rec.Attempt, Started: rec.Started, Deadline: rec.Command.Deadline, Settled: rec.Settled,
		}
		if rec.Ack != nil {
			c.Finished, c.OK, c.Error = rec.Ack.Finished, rec.Ack.OK, rec.Ack.Error
		}
		a.status.Commands = append(a.status.Commands, c)
	}
	if err := writeStatus(a.opt.StatusFile, a.status.Status); err != nil && !a.status.warned {
		a.status.warned = true
		a.log.Warn("the status file cannot be written", "path", a.opt.StatusFile, "error", err)
	}
}

func oneLine(doing, failure string) string {
	if failure == "" {
		return doing
	}
	return doing + ": " + failure
}

// writeStatus replaces the file, so that a reader never sees half of one. It is
// not made durable: it describes a process.
func writeStatus(path string, s Status) error {
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if path, err = symlink.Target(path); err != nil {
		return err
	}
	temp := path + ".tmp"
	if err := os.WriteFile(temp, append(body, '\n'), 0o600); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, path)
}
