package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
)

// What a unit may be found in when the package changes.
var unitStates = []struct{ name, reach string }{
	{"running", "systemctl -q unmask $U; systemctl -q enable $U; systemctl start $U"},
	{"stopped", "systemctl -q unmask $U; systemctl -q enable $U; systemctl stop $U"},
	{"disabled", "systemctl -q unmask $U; systemctl -q disable --now $U"},
	{"masked", "systemctl -q mask --now $U"},
	{"failed", "broken"},
}

// What may be done with the package. Before each, version 1 is there.
var packageSteps = []struct{ name, script string }{
	{"upgrade", "dpkg -i $V2"},
	{"reinstall", "dpkg -i $V1"},
	{"downgrade", "dpkg -i $V2 && before && dpkg -i $V1"},
	{"remove", "dpkg -r bigfleet-agent"},
	{"remove, install", "dpkg -r bigfleet-agent && dpkg -i $V1"},
	{"purge", "dpkg -P bigfleet-agent"},
	{"upgrade, 101", "policy && dpkg -i $V2"},
	{"remove, 101", "policy && dpkg -r bigfleet-agent"},
	{"purge, 101", "policy && dpkg -P bigfleet-agent"},
}

// wantUnits is what becomes of a unit: "active" or "inactive", and "enabled",
// "disabled", "masked" or "absent". A policy-rc.d that answers 101 forbids starts and
// restarts; what is removed ends all the same.
var wantUnits = map[string]map[string]string{
	"running": {
		"upgrade": "active enabled", "reinstall": "active enabled", "downgrade": "active enabled",
		"remove": "inactive absent", "remove, install": "active enabled", "purge": "inactive absent",
		"upgrade, 101": "active enabled", "remove, 101": "inactive absent", "purge, 101": "inactive absent",
	},
	"stopped": {
		"upgrade": "inactive enabled", "reinstall": "inactive enabled", "downgrade": "inactive enabled",
		"remove": "inactive absent", "remove, install": "active enabled", "purge": "inactive absent",
		"upgrade, 101": "inactive enabled", "remove, 101": "inactive absent", "purge, 101": "inactive absent",
	},
	"disabled": {
		"upgrade": "inactive disabled", "reinstall": "inactive disabled", "downgrade": "inactive disabled",
		"remove": "inactive absent", "remove, install": "inactive disabled", "purge": "inactive absent",
		"upgrade, 101": "inactive disabled", "remove, 101": "inactive absent", "purge, 101": "inactive absent",
	},
	"masked": {
		"upgrade": "inactive masked", "reinstall": "inactive masked", "downgrade": "inactive masked",
		"remove": "inactive masked", "remove, install": "inactive masked", "purge": "inactive masked",
		"upgrade, 101": "inactive masked", "remove, 101": "inactive masked", "purge, 101": "inactive masked",
	},
	"failed": {
		"upgrade": "active enabled", "reinstall": "active enabled", "downgrade": "active enabled",
		"remove": "inactive absent", "remove, install": "active enabled", "purge": "inactive absent",
		"upgrade, 101": "failed enabled", "remove, 101": "inactive absent", "purge, 101": "inactive absent",
	},
}

// packageWords are the words that the scripts of packageSteps use.
const packageWords = `
set -eu
U=bigfleet-agent.service
V1=/packages/bigfleet-agent_0.1.0-1_amd64.deb V2=/packages/bigfleet-agent_0.2.0-1_amd64.deb
exec 3>&1 >/var/log/package.log 2>&1
dpkg() { command dpkg --force-unsafe-io "$@"; }
# Another state's package and leavings are no part of what is tried.
policy() { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod 0755 /usr/sbin/policy-rc.d; }
broken() {
	systemctl -q unmask $U
	systemctl -q enable $U
	mkdir -p /run/systemd/system/$U.d
	printf '[Service]\nRestart=no\n' >/run/systemd/system/$U.d/once.conf
	systemctl daemon-reload
	systemctl start $U
	systemctl kill --signal=KILL --kill-who=main $U
	until [ "$(systemctl is-active $U || :)" = failed ]; do sleep 0.1; done
}
fresh() {
	rm -rf /usr/sbin/policy-rc.d /run/systemd/system/$U.d
	systemctl -q unmask $U || :
	dpkg -P bigfleet-agent || :
	mkdir -p /etc/bigfleet-agent
	cp -p /root/config.json /etc/bigfleet-agent/
	cp -a /root/state /var/lib/bigfleet-agent # a host without its state is another host
	dpkg -i $V1
}
`

// packageReport prints the unit's state, the version, and what is left.
const packageReport = `
active=$(systemctl is-active $U || :)
enabled=$(systemctl is-enabled $U 2>/dev/null || :)
echo "$active ${enabled:-absent}" >&3
dpkg-query -W -f '${Status} ${Version}\n' bigfleet-agent >&3 2>/dev/null || echo gone >&3
for path in /etc/bigfleet-agent/config.json /var/lib/bigfleet-agent; do [ ! -e $path ] || echo "has $path" >&3; done
pgrep -x bigfleet-agent >/dev/null && echo "has a process" >&3 || :
`

// TestPackage: the package is upgraded, installed again, downgraded, removed and
// purged over a unit in each of its states. The table of states is printed.
func TestPackage(t *testing.T) {
	t.Parallel()
	packages, first := bothPackages(t)
	w := hosttest.NewWorld(t, hosttest.Options{Prepare: withPackages(packages)})
	p := w.NewProvider(t, hosttest.ProviderOptions{Install: "channel", Args: []string{"--agent-packages=" + first}})
	m := p.Machine(t)
	m.Do(t, hosttest.Create, "")
	g := m.Guest(t)
	g.AwaitBooted(t)
	g.Run(t, "cp -p /etc/bigfleet-agent/config.json /root/; cp -a /var/lib/bigfleet-agent /root/state")

	var table strings.Builder
	fmt.Fprintf(&table, "%-16s", "")
	for _, state := range unitStates {
		fmt.Fprintf(&table, "  %-18s", state.name)
	}
	for _, step := range packageSteps {
		fmt.Fprintf(&table, "\n%-16s", step.name)
		for _, state := range unitStates {
			report := g.Run(t, packageWords+"before() { "+state.reach+"; }\nfresh\nbefore\n"+step.script+"\n"+packageReport)
			unit, rest, _ := strings.Cut(report, "\n")
			fmt.Fprintf(&table, "  %-18s", unit)
			if want := wantUnits[state.name][step.name]; unit != want {
				t.Errorf("%s of a package whose unit is %s: %s, want %s", step.name, state.name, unit, want)
			}
			if diff := cmp.Diff(wantLeft(step.name, unit), rest); diff != "" {
				t.Errorf("%s of a package whose unit is %s: what is there (-want +got):\n%s", step.name, state.name, diff)
			}
		}
	}
	t.Logf("the unit after a change of the package, by its state before:\n%s", table.String())

	// After all of that, the host is as good as new.
	g.Run(t, packageWords+"fresh\n")
	m.Do(t, hosttest.Configure, joinBlob)
	if got := m.Get(t).GetState(); got != pb.MachineState_MACHINE_STATE_CONFIGURED {
		t.Errorf("it is %s", got)
	}
	g.AwaitTrue(t, 10*time.Second, "systemctl is-active --quiet bigfleet-agent")
}

// wantLeft is what packageReport is to say behind its first line.
func wantLeft(step, unit string) string {
	const files = "\nhas /etc/bigfleet-agent/config.json\nhas /var/lib/bigfleet-agent"
	step = strings.TrimSuffix(step, ", 101")
	switch step {
	case "purge":
		return "gone"
	case "remove":
		return "deinstall ok config-files 0.1.0-1" + files
	}
	version := "0.1.0-1"
	if step == "upgrade" {
		version = "0.2.0-1"
	}
	left := "install ok installed " + version + files
	if strings.HasPrefix(unit, "active") {
		left += "\nhas a process"
	}
	return left
}
