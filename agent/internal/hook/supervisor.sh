# Runs one hook and records how it ended. Arguments: run directory, hook, verb.
# The agent may be killed and started again meanwhile; this shell goes on.
set -C # > makes the file or fails: one owner for each run
echo "$$" 2>/dev/null >"$1/pid" || exit 125
set +C
"$2" "$3" >/dev/null
code=$?
# Written over what was reserved: a tmpfs that is full by now has room for it.
echo "$code" 1<>"$1/status.reserved" && mv "$1/status.reserved" "$1/status"
exit "$code"
