package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"bigfleet-providers/agent/internal/blob"
)

// blobCommand is the command of the shipped hooks that reads the blob.
const blobCommand = "blob"

// runBlob reads the blob in a file as one of text, cloud-config, kubeadm and k3s,
// and writes what it understood to another, whose folder is on tmpfs as the blob.
func runBlob(args []string, stdout io.Writer) error {
	const usage = "want: blob text|cloud-config|kubeadm|k3s BLOB OUTPUT"
	if len(args) != 3 {
		return errors.New(usage)
	}
	kind, from, to := args[0], args[1], args[2]
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return errors.New("the blob is empty")
	}
	var out []byte
	switch kind {
	case "text":
		out, err = blob.Text(body)
	case "cloud-config":
		var modules []string
		if modules, out, err = blob.CloudConfig(body); err == nil {
			_, err = fmt.Fprintln(stdout, strings.Join(modules, "\n"))
		}
	case "kubeadm":
		node := blob.Node{Name: os.Getenv("BIGFLEET_NODE_NAME"), ProviderID: os.Getenv("BIGFLEET_PROVIDER_ID")}
		if node.Name == "" || node.ProviderID == "" {
			return errors.New("BIGFLEET_NODE_NAME or BIGFLEET_PROVIDER_ID is not set: this is a command for hooks")
		}
		out, err = blob.Join(body, node, os.Getenv("KUBEADM_API_VERSION"))
	case "k3s":
		out, err = blob.K3s(body)
	default:
		return errors.New(usage)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, out, 0o600)
}
