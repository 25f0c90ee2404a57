package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/systemd"
)

// agentUnit is the agent's unit, as its package installs it.
const agentUnit = "bigfleet-agent.service"

// managerCheck bounds the wait for the service manager at the start.
const managerCheck = 5 * time.Second

// newRunner chooses how hooks run.
func newRunner(ctx context.Context, cfg Config, opt Options, log *slog.Logger) hook.Runner {
	processes := &hook.Processes{}
	if opt.Program == "" {
		return processes
	}
	manager := &systemd.Units{}
	direct := cfg.HookRunner == RunnerDirect
	if cfg.HookRunner == "" || cfg.HookRunner == RunnerAuto {
		if err := answers(ctx, manager); err != nil {
			log.Info("hooks run as processes of the agent, not as units", "reason", err)
			direct = true
		}
	}
	return &hook.Either{
		Units:     &hook.Units{Manager: manager, Supervisor: []string{opt.Program, hook.SuperviseCommand}, Agent: agentUnit, Log: log},
		Processes: processes, Direct: direct,
	}
}

// answers tells why systemd cannot run hooks here, if so.
func answers(ctx context.Context, manager *systemd.Units) error {
	if !systemd.Booted() {
		return errors.New("systemd is not this host's manager")
	}
	ctx, cancel := context.WithTimeout(ctx, managerCheck)
	defer cancel()
	return manager.Check(ctx)
}
