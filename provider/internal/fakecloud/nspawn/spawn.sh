#!/bin/sh
# spawn LOWER UPPER WORK ROOT GROUPS ARGUMENT...: mounts a guest's disk and runs
# systemd-nspawn with the arguments. It is PID 1 of a namespace of its own, so
# that whatever ends it ends all of the guest: systemd-nspawn alone may be killed
# and leave a guest behind. The mounts go with it, too. GROUPS is a file with the
# directories of the cgroups to be in.
set -eu
mount -t proc proc /proc
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
while read -r group; do
	echo $$ >"$group/cgroup.procs"
done <"$5"
shift 5
status=0
systemd-nspawn "$@" || status=$?
exit "$status"
