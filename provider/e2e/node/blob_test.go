package node

import (
	"fmt"
	"regexp"
	"testing"
)

// The kernel of these machines is that of whoever runs the tests, and where its
// configuration is kubeadm cannot know.
const ignored = "SystemVerification"

// joinBlob is a blob with the line that kubeadm prints.
func (c *cluster) joinBlob(t *testing.T) string {
	t.Helper()
	return c.joinLine(t) + " --ignore-preflight-errors=" + ignored + "\n"
}

var joinWords = regexp.MustCompile(`--token (\S+) --discovery-token-ca-cert-hash (\S+)`)

// configurationBlob is a blob with a whole JoinConfiguration.
func (c *cluster) configurationBlob(t *testing.T) string {
	t.Helper()
	line := c.joinLine(t)
	words := joinWords.FindStringSubmatch(line)
	if words == nil {
		t.Fatalf("kubeadm prints %q", line)
	}
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %q, caCertHashes: [%q]}
nodeRegistration:
  ignorePreflightErrors: [%s]
  taints: []
`, c.address, words[1], words[2], ignored)
}
