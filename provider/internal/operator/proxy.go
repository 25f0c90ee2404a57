package operator

import (
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// proxy is the proxy that connections to the provider go through, as scheme and
// host; "" for none. gRPC asks the environment as for an HTTPS request, with TLS and
// without.
func (c *connection) proxy() string {
	u, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: c.addr})
	if err != nil || u == nil {
		return ""
	}
	return u.Scheme + "://" + u.Host // without its password
}

// viaProxy adds to advice that a proxy is on the way, which may be to blame.
func (c *connection) viaProxy(advice string) string {
	if proxy := c.proxy(); proxy != "" {
		return "The connection goes through the proxy " + proxy + " (HTTPS_PROXY); NO_PROXY takes it off the way. " + advice
	}
	return advice
}
