#!/bin/sh
# The hook of a fake host. Everything that it starts inherits the mark by which
# a power-off finds it.
set -eu
root=@ROOT@
export BIGFLEET_FAKE_HOST="$root"
for hook in @HOOK@ "$root/opt/bigfleet/bootstrap"; do
  if [ -n "$hook" ] && [ -x "$hook" ]; then
    exec "$hook" "$@"
  fi
done

joined=$root/var/lib/cluster/joined
log=$root/var/log/hook.log
if [ -f "$log" ] && [ "$(wc -c <"$log")" -ge @LIMIT@ ]; then
  mv "$log" "$log.1"
fi
echo "$1 $BIGFLEET_COMMAND_ID $BIGFLEET_ATTEMPT $BIGFLEET_CLUSTER_ID" >>"$log"
case $1 in
configure)
  if [ "$(head -c 2 "$BIGFLEET_BLOB_FILE")" = '#!' ]; then
    cd "$root"
    sh "$BIGFLEET_BLOB_FILE"
  fi
  echo "$BIGFLEET_CLUSTER_ID" >"$joined"
  ;;
ready) [ "$(cat "$joined")" = "$BIGFLEET_CLUSTER_ID" ] ;;
drain) rm -f "$joined" ;;
*)
  echo "the hook does not know the verb $1" >&2
  exit 64
  ;;
esac
