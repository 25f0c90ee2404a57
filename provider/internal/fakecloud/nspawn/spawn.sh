#!/bin/sh
# spawn LOWER UPPER WORK ROOT GROUPS ARGUMENT...: mounts a guest's disk and
# becomes systemd-nspawn with the arguments. It runs in a mount namespace of its
# own, so that the mount goes with it. GROUPS is a file with the directories of
# the cgroups to be in.
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
while read -r group; do
	echo $$ >"$group/cgroup.procs"
done <"$5"
shift 5
exec systemd-nspawn "$@"
