package node

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"bigfleet-providers/provider/e2e/host/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Set by make e2e-node.
const (
	// kubernetesVariable names the folder with Kubernetes' programs.
	kubernetesVariable = "BIGFLEET_KUBERNETES"
	// layerVariable names the layer with a container runtime over the Debian root.
	layerVariable = "BIGFLEET_NODE_LAYER"
)

// require skips the test, and says why, where there can be no nodes.
func require(t *testing.T) {
	t.Helper()
	for _, name := range []string{kubernetesVariable, layerVariable} {
		if os.Getenv(name) == "" {
			t.Skipf("%s is not set: make e2e-node runs this test", name)
		}
	}
	hosttest.Require(t)
}

// program is the path of one of Kubernetes' programs.
func program(name string) string { return filepath.Join(os.Getenv(kubernetesVariable), name) }
