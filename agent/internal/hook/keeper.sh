# Keeps the end of what a hook and its daemons print to the pipe on standard
# input, for as long as one of them holds it. Argument: run directory. Neither
# the agent's death nor the hook's end is this shell's, or a daemon would be
# killed by its next line; and a daemon that prints for ever fills nothing.
#
# Whole pieces move stderr.new -> stderr -> stderr.old. dd writes each line as it
# comes, where head and tail would hold lines back.
cd "$1" || exec cat >/dev/null
while dd bs=4096 count=64 of=stderr.new 2>/dev/null && [ -s stderr.new ] && ! [ -e outcome ]; do
	if [ -e stderr ]; then mv stderr stderr.old; fi
	mv stderr.new stderr
done
# The end, or a full tmpfs, or nobody will look at what comes. After the outcome
# nothing is made here: the directory may be in removal.
if [ -e outcome ]; then rm -f stderr.new; fi
cat >/dev/null
[ -e outcome ] || : >drained
