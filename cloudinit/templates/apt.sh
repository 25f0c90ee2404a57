{{template "begin"}}{{template "retry"}}
# apt has rules of its own for what goes by a proxy: it is told the result of the
# agent's. Not as an option, since a proxy's URL may hold a password.
proxy=$(
  python3 - '{{.APT.URI}}' <<'END'
{{template "proxy.py"}}
u = proxy_for(sys.argv[1])
print(u.geturl().replace("socks5:", "socks5h:", 1) if u else "")
END
)
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
[ -z "$proxy" ] || export http_proxy="$proxy" https_proxy="$proxy"

# Only our own source, so that another one that is broken does no harm; what was
# read from the others is kept.
ours() {
  apt-get -o Dir::Etc::sourcelist={{.SourcePath}} -o Dir::Etc::sourceparts=- \
    -o APT::Get::List-Cleanup=0 -o DPkg::Lock::Timeout=600 "$@"
}
refresh() { ours -q -o APT::Update::Error-Mode=any update; }
install() {
  repair
  ours -q -y --no-install-recommends -o Dpkg::Options::=--force-confold install bigfleet-agent
}

retry 360 10 refresh
retry 180 10 install
{{- template "end" .}}
