{{template "begin"}}{{template "retry"}}
# Only our own source, so that another one that is broken does no harm; what was
# read from the others is kept.
ours() {
  apt-get -o Dir::Etc::sourcelist={{.SourcePath}} -o Dir::Etc::sourceparts=- \
    -o APT::Get::List-Cleanup=0 -o DPkg::Lock::Timeout=600 "$@"
}
refresh() { ours -q -o APT::Update::Error-Mode=any update; }
install() { ours -q -y --no-install-recommends -o Dpkg::Options::=--force-confold install bigfleet-agent; }

retry 360 10 refresh
retry 180 10 install
{{- template "end"}}
