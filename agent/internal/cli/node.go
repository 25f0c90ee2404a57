package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"bigfleet-providers/agent/internal/node"
)

// nodeCommand is the command of the shipped hooks: what they ask of a cluster.
const nodeCommand = "node"

// runNode carries out one of ready, drain and leave with the kubelet's
// credentials in kubeconfig, for the node that they are for, and the hook's own
// environment. An empty BIGFLEET_NODE_NAME takes the node by any name.
func runNode(ctx context.Context, verb, kubeconfig string, out io.Writer) error {
	name, isSet := os.LookupEnv("BIGFLEET_NODE_NAME")
	if !isSet {
		return errors.New("BIGFLEET_NODE_NAME is not set: this is a command for hooks")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := node.New(kubeconfig, name)
	if err != nil {
		return err
	}
	defer client.Close()
	switch verb {
	case "ready":
		return client.Ready(ctx, os.Getenv("BIGFLEET_PROVIDER_ID"))
	case "drain":
		seconds, err := strconv.ParseInt(os.Getenv("BIGFLEET_GRACE_SECONDS"), 10, 32)
		if err != nil {
			return fmt.Errorf("BIGFLEET_GRACE_SECONDS: %w", err)
		}
		return client.Drain(ctx, time.Duration(seconds)*time.Second)
	case "leave":
		return client.Leave(ctx, out)
	}
	return fmt.Errorf("node %s: want ready, drain or leave", verb)
}
