package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// drained marks a Node that Drain has cordoned: where nobody deleted the Node, a
// later join finds it so.
const drained = "bigfleet.io/drained"

// Ready returns nil when the node is Ready in its cluster, has the wanted name and,
// unless providerID is "", has that provider id. Else it says what is missing. A node that an
// earlier Drain cordoned takes pods again; one that somebody else cordoned does
// not.
func (c *Client) Ready(ctx context.Context, providerID string) error {
	if c.wanted != "" && c.name != c.wanted {
		return fmt.Errorf("the kubelet has joined as node %s, not as %s: join with the name in BIGFLEET_NODE_NAME (kubeadm join --node-name), or ask with BIGFLEET_NODE_NAME='' where any name will do", c.name, c.wanted)
	}
	var n object
	err := c.call(ctx, http.MethodGet, c.nodePath(), nil, "", nil, &n)
	if isCode(err, http.StatusNotFound) {
		return fmt.Errorf("node %s is not registered in the cluster", c.name)
	}
	if err != nil {
		return fmt.Errorf("node %s cannot be read: %w", c.name, err)
	}
	if providerID != "" && n.Spec.ProviderID != providerID {
		return fmt.Errorf("node %s has the provider id %q, want %q: delete the Node object, its kubelet registers it anew", c.name, n.Spec.ProviderID, providerID)
	}
	for _, cond := range n.Status.Conditions {
		switch {
		case cond.Type != "Ready":
		case cond.Status == "True":
			return c.uncordon(ctx, n)
		default:
			return fmt.Errorf("node %s: Ready is %s: %s: %s", c.name, cond.Status, cond.Reason, cond.Message)
		}
	}
	return fmt.Errorf("node %s has no Ready condition yet", c.name)
}

const (
	evictPause = 2 * time.Second
	// forceWait is for deletions without a grace period.
	forceWait = 10 * time.Second
)

// Drain cordons the node and evicts its pods until none is left. When grace is
// over it fails and names what is left; a grace of 0 deletes the pods by force.
// What an API server refuses or does not answer is tried again until then. A
// node that the cluster does not have is drained.
func (c *Client) Drain(ctx context.Context, grace time.Duration) error {
	limit := grace
	if grace <= 0 {
		limit = forceWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the grace period is over"))
	defer cancel()
	var left []object
	var last error // of the last round
	for cordoned := false; ; {
		var err error
		if !cordoned {
			if err = c.cordon(ctx); isCode(err, http.StatusNotFound) {
				return nil
			}
			cordoned = err == nil
		}
		if cordoned {
			var now []object
			if now, err = c.pods(ctx); err == nil {
				if left = now; len(left) == 0 {
					return nil
				}
				err = c.evict(ctx, left, grace <= 0)
			}
		}
		if ctx.Err() == nil {
			last = err // not of a call that the end of the time cut short
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.pause):
			continue
		}
		err = context.Cause(ctx)
		if len(left) > 0 {
			err = fmt.Errorf("%w and %d pods are left: %s", err, len(left), names(left))
		}
		if last != nil {
			err = fmt.Errorf("%w; %w", err, last)
		}
		return err
	}
}

func (c *Client) cordon(ctx context.Context) error {
	patch := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{drained: "true"}},
		"spec":     map[string]any{"unschedulable": true},
	}
	err := c.call(ctx, http.MethodPatch, c.nodePath(), nil, mergeType, patch, nil)
	if err != nil {
		return fmt.Errorf("node %s cannot be cordoned: %w", c.name, err)
	}
	return nil
}

func (c *Client) uncordon(ctx context.Context, n object) error {
	if _, ours := n.Metadata.Annotations[drained]; !ours {
		return nil
	}
	patch := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{drained: nil}},
		"spec":     map[string]any{"unschedulable": nil},
	}
	err := c.call(ctx, http.MethodPatch, c.nodePath(), nil, mergeType, patch, nil)
	if err != nil {
		return fmt.Errorf("node %s cannot be uncordoned: %w", c.name, err)
	}
	return nil
}

// evict asks for the end of each pod that is not about to end. It returns the
// last refusal: a disruption budget may allow it later.
func (c *Client) evict(ctx context.Context, pods []object, force bool) error {
	var refusal error
	for _, pod := range pods {
		var err error
		// Not another pod that got its name meanwhile.
		same := map[string]any{"uid": pod.Metadata.UID}
		switch {
		case force:
			options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": same}
			err = c.call(ctx, http.MethodDelete, podPath(pod), nil, jsonType, options, nil)
		case pod.Metadata.DeletionTimestamp != "":
		default:
			eviction := map[string]any{
				"apiVersion": "policy/v1", "kind": "Eviction",
				"metadata":      map[string]any{"namespace": pod.Metadata.Namespace, "name": pod.Metadata.Name},
				"deleteOptions": map[string]any{"preconditions": same},
			}
			err = c.call(ctx, http.MethodPost, podPath(pod)+"/eviction", nil, jsonType, eviction, nil)
		}
		if err != nil && !isCode(err, http.StatusNotFound) && !isCode(err, http.StatusConflict) {
			refusal = fmt.Errorf("%s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
		}
	}
	return refusal
}

// Leave takes the node out of the cluster; call it when its kubelet has stopped,
// which would register it again. Where the kubelet may not delete its own Node,
// it is marked as not ready, so that the cluster does not wait for it and a
// later join under its name is not refused; out gets a line that says so.
//
// An administrator allows it by the verb delete on nodes for the group
// system:nodes; the NodeRestriction admission plugin limits that to the own
// Node.
func (c *Client) Leave(ctx context.Context, out io.Writer) error {
	err := c.call(ctx, http.MethodDelete, c.nodePath(), nil, "", nil, nil)
	switch {
	case err == nil, isCode(err, http.StatusNotFound):
		return nil
	case !isCode(err, http.StatusForbidden):
		return fmt.Errorf("node %s cannot be deleted: %w", c.name, err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	patch := map[string]any{"status": map[string]any{"conditions": []map[string]any{{
		"type": "Ready", "status": "False", "reason": "Drained", "message": "the host has left the cluster",
		"lastHeartbeatTime": now, "lastTransitionTime": now,
	}}}}
	err = c.call(ctx, http.MethodPatch, c.nodePath()+"/status", nil, strategicType, patch, nil)
	if err != nil && !isCode(err, http.StatusNotFound) {
		return fmt.Errorf("node %s cannot be marked as not ready: %w", c.name, err)
	}
	_, err = fmt.Fprintf(out, "node %s stays in the cluster, not ready: its kubelet may not delete it\n", c.name)
	return err
}
