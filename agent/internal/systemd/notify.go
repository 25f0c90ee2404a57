// Package systemd tells the service manager how the agent is doing.
package systemd

import (
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"bigfleet-providers/agent/internal/plain"
)

// Notifier speaks the sd_notify protocol. Where there is no service manager
// (NOTIFY_SOCKET is unset) every call does nothing. See sd_notify(3).
type Notifier struct{ log *slog.Logger }

// New returns a notifier; log gets what cannot be sent.
func New(log *slog.Logger) *Notifier { return &Notifier{log: log} }

// Ready says that the service is up.
func (n *Notifier) Ready() { n.send(daemon.SdNotifyReady) }

// Stopping says that the service is going down.
func (n *Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Watchdog says that the main loop turns.
func (n *Notifier) Watchdog() { n.send(daemon.SdNotifyWatchdog) }

// Status shows text in systemctl status, on one line: a second one would be
// another message.
func (n *Notifier) Status(text string) { n.send("STATUS=" + plain.Line(text)) }

// Interval returns the time after which the manager kills a service that did
// not call Watchdog, or 0 when it does not watch.
func (n *Notifier) Interval() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the service manager's watchdog setting is unreadable", "error", err)
		return 0
	}
	return d
}

func (n *Notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("cannot notify the service manager", "error", err)
	}
}
