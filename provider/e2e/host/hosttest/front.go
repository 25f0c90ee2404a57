package hosttest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
)

// Front serves the provider that listens at an address under a certificate of
// its own, at the channel's usual address.
func (w *World) Front(t *testing.T, ca *Authority, pair Pair, addr string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pinned)
	listener, err := w.Hosts.Network().Listen(context.Background(), net.JoinHostPort(w.Gateway(), channelPort))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: net.JoinHostPort(addr, channelPort)})
	proxy.Transport = transport
	server := httptest.NewUnstartedServer(proxy)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // polls may be parked
		server.Close()
		transport.CloseIdleConnections()
	})
}
