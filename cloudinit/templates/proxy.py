import ipaddress, os, re, sys
from urllib.parse import unquote, urlsplit

def settings():
    """The environment of the agent's unit: its file is read as systemd does."""
    env, at = dict(os.environ), 0
    try:
        with open("/etc/default/bigfleet-agent") as f:
            text = f.read()
    except FileNotFoundError:
        return env
    def take(pattern):
        nonlocal at
        m = re.compile(pattern, re.S).match(text, at)
        at = m.end() if m else at
        return m
    while take(r"\s*") and at < len(text):
        name = take(r"([A-Za-z_]\w*)[ \t]*=[ \t]*")
        if not name:
            take(r"(\\.|[^\\\n])*\\?")
            continue
        value = ""
        while True:
            quoted = take(r"""[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")
            if not quoted:
                break
            value += re.sub(r"(?s)\\(\n|[\"\\`$])", lambda m: m[1].strip("\n"), quoted[1]) if quoted[2] is None else quoted[2]
        rest = take(r"((?:\\.|[^\\\n])*)\\?")[1]
        value += re.sub(r"(?s)\\(.)", lambda m: m[1].strip("\n"), re.sub(r"(?<!\\)[ \t\r]+$", "", rest))
        env[name[1]] = value
    return env

def address(text):
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip

def proxy_for(url):
    """The proxy to url, or None, by the rules of Go's net/http, as for the agent."""
    env, u = settings(), urlsplit(url)
    host, port = u.hostname, str(u.port or {"http": 80, "https": 443}[u.scheme])
    def any_of(name):
        return env.get(name.upper()) or env.get(name) or ""
    proxy, ip = any_of(u.scheme + "_proxy"), address(host)
    if not proxy or host == "localhost" or ip and ip.is_loopback:
        return None
    for entry in any_of("no_proxy").lower().split(","):
        entry = entry.strip()
        if entry == "*":
            return None
        if re.search(r"/\d+$", entry):
            try:
                if ip and ip in ipaddress.ip_network(entry, strict=False):
                    return None
                continue
            except ValueError:
                pass
        m = re.match(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)$", entry)
        name, at = (m[1] or m[2], m[3]) if m else (entry, "")
        if not name or at not in ("", port):
            continue
        if address(name):
            if address(name) == ip:
                return None
            continue
        if name.startswith("*."):
            name = name[1:]
        if not ip and (host == name or host.endswith(name if name[0] == "." else "." + name)):
            return None
    p = urlsplit(proxy)
    return p if p.scheme and p.netloc else urlsplit("http://" + proxy)
