package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"testing"
)

func TestCertificatesMakeMutualTLS(t *testing.T) {
	c, err := makeCertificates(t.TempDir(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.serverCrt, c.serverKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the CA file holds no certificate")
	}
	server := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}

	for _, host := range []string{"127.0.0.1", "localhost"} {
		state, err := handshake(server, c.shard, host)
		if err != nil {
			t.Fatalf("the shard at %s: %v", host, err)
		}
		uris := state.PeerCertificates[0].URIs
		if len(uris) != 1 || uris[0].String() != "bigfleet://shard/demo" {
			t.Errorf("the shard's certificate names %v, want bigfleet://shard/demo", uris)
		}
	}
	if _, err := handshake(server, c.stranger, "127.0.0.1"); err == nil {
		t.Error("a client without a certificate got in")
	}
	if _, err := handshake(server, c.shard, "198.51.100.7"); err == nil {
		t.Error("the server's certificate passed for an address that is not its own")
	}
}

func TestKeysAreForTheOwnerOnly(t *testing.T) {
	c, err := makeCertificates(t.TempDir(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.serverKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode of the server's key is %o, want 600", got)
	}
}

// handshake connects the two in memory and returns what the server saw.
func handshake(server, client *tls.Config, host string) (tls.ConnectionState, error) {
	a, b := net.Pipe()
	defer a.Close()
	client = client.Clone()
	client.ServerName = host
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		conn := tls.Client(b, client)
		err := conn.Handshake()
		if err == nil {
			_, err = io.ReadAll(conn) // the server's verdict comes after the client's handshake
		}
		done <- err
	}()
	conn := tls.Server(a, server)
	err := conn.Handshake()
	state := conn.ConnectionState()
	if err == nil {
		err = conn.CloseWrite()
	}
	a.Close()
	return state, errors.Join(err, <-done)
}
