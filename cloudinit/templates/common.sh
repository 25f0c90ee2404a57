{{define "begin"}}#!/bin/sh
# Installs and starts bigfleet-agent at first boot. Safe to run again.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# The agent's proxy is meant for what is fetched here, too. The file is systemd's
# and no script; apt knows the names in small letters only.
if [ -r /etc/default/bigfleet-agent ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    name=${line%%=*} value=${line#*=}
    case $name in
    *[!A-Za-z_]*) ;;
    *_proxy | *_PROXY)
      value=${value#[\"\']}
      value=${value%[\"\']}
      export "$name=$value" "$(echo "$name" | tr A-Z a-z)=$value"
      ;;
    esac
  done </etc/default/bigfleet-agent
fi

say() { echo "bigfleet-agent first boot: $*" >&2; }
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
{{end}}

{{define "end"}}
systemctl enable bigfleet-agent.service
# Without waiting: the unit may be ordered behind cloud-init, which waits for
# this script.
systemctl --no-block restart bigfleet-agent.service
say "started"
{{- end}}
