package docs

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/docs/page"
)

// TestCertificatesAreBackdated runs what the pages make certificates with: a host
// whose clock is behind at its first boot must be able to use them.
func TestCertificatesAreBackdated(t *testing.T) {
	ran := 0
	for _, name := range pages(t) {
		blocks, err := page.Read(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if !strings.Contains(b.Text, "-keyout") {
				continue
			}
			ran++
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\nkubectl() { :; }\n"+b.Text)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s:%d: %v\n%s", name, b.Line, err, out)
			}
			for _, file := range []string{"ca", "channel", "server", "shard", "operator"} {
				content, err := os.ReadFile(filepath.Join(dir, file+".pem"))
				if err != nil {
					t.Fatal(err)
				}
				block, rest := pem.Decode(content)
				if block == nil || len(rest) > 0 {
					t.Fatalf("%s: %s.pem is not one PEM block", name, file)
				}
				cert, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				if since := time.Since(cert.NotBefore); since < 23*time.Hour || since > 25*time.Hour {
					t.Errorf("%s: %s.pem is good from %s on, %s ago; want a day", name, file, cert.NotBefore, since)
				}
				if cert.IsCA != (file == "ca") || time.Until(cert.NotAfter) < 364*24*time.Hour {
					t.Errorf("%s: %s.pem: CA %t, until %s", name, file, cert.IsCA, cert.NotAfter)
				}
			}
		}
	}
	if ran < 2 {
		t.Errorf("%d pages make certificates, want 2", ran)
	}
}
