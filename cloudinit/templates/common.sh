{{define "begin"}}#!/bin/sh
# Installs and starts bigfleet-agent at first boot. Safe to run again: what a
# reboot has cut off is done again at the next boot.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() { echo "bigfleet-agent first boot: $*" >&2; }

# From here on no power cut takes away what has the next boot go on.
sync
{{end}}

{{define "retry"}}
# retry TIMES SECONDS COMMAND... runs it until it succeeds. It counts pauses and
# not the clock, which may jump by years while a new machine gets its time.
retry() {
  left=$1 pause=$2
  shift 2
  until "$@"; do
    left=$((left - 1))
    if [ "$left" -le 0 ]; then
      say "gave up on: $1"
      exit 1
    fi
    say "$1 failed, again in $pause s"
    sleep "$pause"
  done
}

# A package that was cut off half-way, ours or what ours needs, stays so until
# it is configured. Does nothing where there is none.
repair() { dpkg --force-confdef --force-confold --configure -a || say "dpkg cannot configure all packages"; }
{{end}}

{{define "end"}}
systemctl enable bigfleet-agent.service
# Without waiting: the unit may be ordered behind cloud-init, which waits for
# this script.
systemctl --no-block restart bigfleet-agent.service
# Nothing is left for the next boot, once what was installed is on the disk.
sync
rm -f {{.PendingPath}} {{.ResumePath}}
say "started"
{{- end}}
