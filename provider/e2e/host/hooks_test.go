package host

import (
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// gated is a blob that notes its start, waits until it is let go, and notes its
// end. What stands in middle runs in between.
func gated(middle string) string {
	return `#!/bin/sh
set -eu
rm -f /var/lib/go
echo "start $BIGFLEET_ATTEMPT" >>/var/lib/hook.log
` + middle + `
while [ ! -e /var/lib/go ]; do sleep 0.1; done
echo "end $BIGFLEET_ATTEMPT" >>/var/lib/hook.log
`
}

const unit = "bigfleet-agent.service"

// restarts ends an agent and has another one run.
var restarts = []struct{ name, script string }{
	{"the agent is restarted", "systemctl restart " + unit},
	{"the agent is killed", "old=$(systemctl show -P MainPID " + unit + "); kill -9 $old; " +
		"until new=$(systemctl show -P MainPID " + unit + ") && [ $new != 0 ] && [ $new != $old ]; do sleep 0.1; done"},
	{"the package is upgraded", "dpkg -i /packages/bigfleet-agent_0.2.0-1_amd64.deb"},
	{"the package is installed again", "dpkg -i /packages/bigfleet-agent_0.2.0-1_amd64.deb"},
}

// withPackages shows a folder of packages to the guests.
func withPackages(dir string) func(fakecloud.Guest, *nspawn.Options) error {
	return func(_ fakecloud.Guest, opts *nspawn.Options) error {
		opts.Binds = append(opts.Binds, nspawn.Bind{Source: dir, Target: "/packages", ReadOnly: true})
		return nil
	}
}

// bothPackages is a folder with two versions of the agent's package; new hosts
// get the newer one, unless it is kept from the provider.
func bothPackages(t *testing.T) (all, first string) {
	t.Helper()
	hosttest.Require(t)
	all, first = t.TempDir(), t.TempDir()
	hosttest.AgentPackage(t, all, release)
	hosttest.AgentPackage(t, all, "v0.2.0")
	hosttest.AgentPackage(t, first, release)
	return all, first
}

// TestHooks: what happens to the agent or the host while a hook runs, and what a
// hook leaves behind.
func TestHooks(t *testing.T) {
	t.Parallel()
	packages, first := bothPackages(t)
	w := hosttest.NewWorld(t, hosttest.Options{Prepare: withPackages(packages)})
	p := w.NewProvider(t, hosttest.ProviderOptions{Install: "channel", Args: []string{"--agent-packages=" + first}})
	m := p.Machine(t)
	m.Do(t, hosttest.Create, "")
	g := m.Guest(t)
	g.AwaitBooted(t)

	whole := t
	// begin starts a Configure with a hook that waits.
	begin := func(t *testing.T, blob string) {
		t.Helper()
		g.Run(t, "rm -f /var/lib/hook.log")
		m.Ask(t, hosttest.Configure, blob)
		g.AwaitTrue(t, 30*time.Second, "grep -q start /var/lib/hook.log")
	}
	// finish lets it go and takes the machine back to IDLE.
	finish := func(t *testing.T, wantLog string) {
		t.Helper()
		g.Run(t, "touch /var/lib/go")
		m.Await(t, pb.MachineState_MACHINE_STATE_CONFIGURED, time.Minute)
		if log := g.Run(t, "cat /var/lib/hook.log"); log != wantLog {
			t.Errorf("the hook's log, want %q:\n%s", wantLog, log)
		}
		m.Do(t, hosttest.Drain, "")
	}

	for _, tt := range restarts {
		t.Run(tt.name, func(t *testing.T) {
			begin(t, gated(""))
			g.Run(t, tt.script)
			g.AwaitTrue(t, 20*time.Second, "systemctl is-active --quiet "+unit)
			finish(t, "start 1\nend 1")
		})
	}
	t.Run("a hook upgrades the agent", func(t *testing.T) {
		begin(t, gated("dpkg -i /packages/bigfleet-agent_0.1.0-1_amd64.deb && echo installed >>/var/lib/hook.log"))
		g.AwaitTrue(t, 30*time.Second, "grep -q installed /var/lib/hook.log")
		finish(t, "start 1\ninstalled\nend 1")
	})
	for name, reboot := range map[string]func(*hosttest.Guest, *testing.T){
		"the host reboots": (*hosttest.Guest).Reboot, "the host's power is cut": (*hosttest.Guest).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			begin(t, gated(""))
			reboot(g, t)
			g.AwaitTrue(t, time.Minute, "grep -q 'start 2' /var/lib/hook.log")
			finish(t, "start 1\nstart 2\nend 2")
		})
	}
	t.Run("the provider is away while the host boots", func(t *testing.T) {
		p.Stop(t)
		g.Reboot(t)
		g.AwaitTrue(t, time.Minute, "systemctl is-active --quiet "+unit+" && journalctl -b -u "+unit+" | grep -q 'connection refused'")
		p.Start(whole) // later subtests need it, too
		begin(t, gated(""))
		finish(t, "start 1\nend 1")
		if n := g.Run(t, "systemctl show -P NRestarts "+unit); n != "0" {
			t.Errorf("the agent was started again %s times", n)
		}
	})
	t.Run("a daemon that is left lives on", func(t *testing.T) {
		began := time.Now()
		m.Do(t, hosttest.Configure, "#!/bin/sh\nset -eu\nsleep 7001 &\nsetsid sleep 7002 >/dev/null 2>&1 &\n")
		// The first of them holds the pipe of the hook's output.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("its result took %s", took)
		}
		g.Run(t, "systemctl restart "+unit)
		g.AwaitTrue(t, 20*time.Second, "systemctl is-active --quiet "+unit)
		g.Run(t, "pgrep -f 'slee[p] 7001' && pgrep -f 'slee[p] 7002'")
		m.Do(t, hosttest.Drain, "")
	})
	t.Run("a #cloud-config with quoted keys and CRLF", func(t *testing.T) {
		m.Do(t, hosttest.Configure, strings.ReplaceAll(`#cloud-config
"write_files":
- {"path": /var/lib/written, "permissions": '0640', "content": "a\n"}
- {"path": /var/lib/written-later, "defer": true, "content": "b\n"}
"runcmd":
- [sh, -c, "cat /var/lib/written /var/lib/written-later >/var/lib/ran"]
- stat -c %a /var/lib/written >>/var/lib/ran
`, "\n", "\r\n"))
		if got := g.Run(t, "cat /var/lib/ran"); got != "a\nb\n640" {
			t.Errorf("the commands saw %q", got)
		}
		m.Do(t, hosttest.Drain, "")
	})
	t.Run("the disk is full for a moment", func(t *testing.T) {
		g.Run(t, fillState)
		m.Ask(t, hosttest.Configure, joinBlob)
		g.AwaitTrue(t, time.Minute, "journalctl -b -u "+unit+" | grep -q 'trying again until its deadline'")
		g.Run(t, "rm /var/lib/bigfleet-agent/ballast")
		m.Await(t, pb.MachineState_MACHINE_STATE_CONFIGURED, time.Minute)
		m.Do(t, hosttest.Drain, "")
	})
}

// fillState leaves no room for another file in the agent's state directory until
// its file ballast is removed.
const fillState = `set -eu
	systemctl stop bigfleet-agent
	cp -a /var/lib/bigfleet-agent /root/state
	mount -t tmpfs -o size=256k,mode=0700 tmpfs /var/lib/bigfleet-agent
	cp -a /root/state/. /var/lib/bigfleet-agent/
	systemctl start bigfleet-agent
	until bigfleet-agent status | grep -q .; do sleep 0.1; done
	dd if=/dev/zero of=/var/lib/bigfleet-agent/ballast bs=4k 2>/dev/null || :`

// TestHookFailures: hooks that fail for what the host is or does. Each ends its
// machine, so each has one of its own.
func TestHookFailures(t *testing.T) {
	t.Parallel()
	_, packages := bothPackages(t)
	w := hosttest.NewWorld(t, hosttest.Options{})
	const deadline = 12 * time.Second
	p := w.NewProvider(t, hosttest.ProviderOptions{Install: "channel", Args: []string{
		"--agent-packages=" + packages, "--configure-timeout=" + deadline.String(),
	}})

	t.Run("the deadline kills all of it", func(t *testing.T) {
		m := p.Machine(t)
		m.Do(t, hosttest.Create, "")
		g := m.Guest(t)
		g.AwaitBooted(t)
		m.Ask(t, hosttest.Configure, "#!/bin/sh\ntrap '' TERM\necho 'waiting for the moon' >&2\n"+
			"setsid sh -c \"trap '' TERM; sleep 7003\" >/dev/null 2>&1 &\nsleep 7003 & wait\nwhile :; do sleep 7003; done\n")
		g.AwaitTrue(t, 10*time.Second, "pgrep -f 'slee[p] 7003'")
		got := m.Await(t, pb.MachineState_MACHINE_STATE_FAILED, deadline+20*time.Second)
		if !strings.Contains(got.GetLastError(), "waiting for the moon") {
			t.Errorf("last_error does not have the hook's last words: %s", got.GetLastError())
		}
		g.AwaitTrue(t, 10*time.Second, "! pgrep -f 'slee[p] 7003'")
		g.Run(t, "systemctl is-active --quiet "+unit)
	})
	t.Run("the disk is full", func(t *testing.T) {
		m := p.Machine(t)
		m.Do(t, hosttest.Create, "")
		g := m.Guest(t)
		g.AwaitBooted(t)
		g.Run(t, fillState)
		m.Ask(t, hosttest.Configure, joinBlob)
		got := m.Await(t, pb.MachineState_MACHINE_STATE_FAILED, deadline+20*time.Second)
		if !strings.Contains(got.GetLastError(), "no space left") {
			t.Errorf("last_error does not say what is full: %s", got.GetLastError())
		}
		if g.Holds(t, "test -e /var/lib/joins") {
			t.Error("a hook ran and was not on record")
		}
	})
	t.Run("a cloned host is refused", func(t *testing.T) {
		machines := p.Machines(t, 2)
		m, second := machines[0], machines[1]
		for _, one := range machines {
			one.Ask(t, hosttest.Create, "")
		}
		for _, one := range machines {
			one.Await(t, pb.MachineState_MACHINE_STATE_IDLE, hosttest.CreateTime)
		}
		g, clone := m.Guest(t), second.Guest(t)
		g.AwaitBooted(t)
		clone.AwaitBooted(t)
		clone.Run(t, "cat >/etc/bigfleet-agent/config.json <<'END'\n"+g.Run(t, "cat /etc/bigfleet-agent/config.json")+"\nEND\nsystemctl restart "+unit)
		p.Line(t, "refused a second host that uses a machine's token.*"+m.ID)
		m.Do(t, hosttest.Configure, joinBlob)
		if !g.Holds(t, "test -e /var/lib/joins") || clone.Holds(t, "test -e /var/lib/joins") {
			t.Error("the command went to the clone")
		}
	})
}
