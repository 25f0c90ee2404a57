package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
)

// evil is a name that sets a terminal's title, and tells the service manager
// that the agent hangs.
const evil = "x\x1b]0;OWNED\x07\nWATCHDOG=trigger\nok    token       accepted"

// impostor listens with a certificate of its own that names evil.
func impostor(t *testing.T) (endpoint string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(evil)}})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1)) // the handshake, which the agent ends
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return "https://localhost:" + portOf(ln.Addr())
}

func portOf(a net.Addr) string {
	_, port, _ := strings.Cut(a.String(), ":")
	return port
}

// TestWordsOfOthersArePlain: who is on the path and cannot prove anything still
// has its certificate's names quoted, and no more than that.
func TestWordsOfOthersArePlain(t *testing.T) {
	server, dir := ct.Start(t, ct.Options{}), t.TempDir()
	config := server.Config(t, dir, "")
	content, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	fields["endpoint"] = impostor(t)
	if content, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, checked, failed := invoke(t, "check", "--config", config)
	shown := render(agent.Status{Doing: "retrying", LastError: evil, Commands: []agent.CommandStatus{{ClusterID: "c\u202e", Error: evil, Finished: time.Now()}}}, time.Now(), true)
	for what, text := range map[string]string{"check": checked + failed, "status": shown} {
		if !strings.Contains(text, "OWNED") {
			t.Errorf("%s does not quote the name: %q", what, text)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "WATCHDOG") || strings.HasPrefix(line, "ok    token") || strings.ContainsFunc(line, unicode.IsControl) || strings.Contains(line, "\u202e") {
				t.Errorf("%s: %q", what, line)
			}
		}
	}
}
