package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const maxBody = 64 << 20 // a node has a few hundred pods of some KiB each

// statusError is a refusal of the API server.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answered %d: %s", e.code, e.message)
}

// isCode tells whether err is a refusal with the HTTP status code.
func isCode(err error, code int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.code == code
}

// call sends a request and decodes the answer into out, if that is not nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, contentType string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	u := c.server.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "bigfleet-agent")
	if in != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := json.NewDecoder(io.LimitReader(resp.Body, maxBody))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var status struct {
			Message string `json:"message"`
		}
		if err := answer.Decode(&status); err != nil || status.Message == "" {
			status.Message = http.StatusText(resp.StatusCode)
		}
		return &statusError{resp.StatusCode, status.Message}
	}
	if out == nil {
		return nil
	}
	if err := answer.Decode(out); err != nil {
		return fmt.Errorf("the API server's answer to %s %s: %w", method, path, err)
	}
	return nil
}

const (
	jsonType  = "application/json"
	mergeType = "application/merge-patch+json"
	// A status patch of this kind merges conditions by their type.
	strategicType = "application/strategic-merge-patch+json"
)

// object has the fields of the API's objects that are looked at here.
type object struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		Phase      string      `json:"phase"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (c *Client) nodePath() string { return "/api/v1/nodes/" + url.PathEscape(c.name) }

func podPath(pod object) string {
	return "/api/v1/namespaces/" + url.PathEscape(pod.Metadata.Namespace) + "/pods/" + url.PathEscape(pod.Metadata.Name)
}

// pods returns what must leave the node: not the pods of DaemonSets, not the
// kubelet's own static pods, not what has ended.
func (c *Client) pods(ctx context.Context) ([]object, error) {
	var list struct {
		Items []object `json:"items"`
	}
	// The Node authorizer lets a kubelet list with this selector only.
	query := url.Values{"fieldSelector": {"spec.nodeName=" + c.name}}
	if err := c.call(ctx, http.MethodGet, "/api/v1/pods", query, "", nil, &list); err != nil {
		return nil, fmt.Errorf("the node's pods cannot be listed: %w", err)
	}
	var left []object
	for _, pod := range list.Items {
		_, static := pod.Metadata.Annotations["kubernetes.io/config.mirror"]
		if !static && !ofDaemonSet(pod) && pod.Status.Phase != "Succeeded" && pod.Status.Phase != "Failed" {
			left = append(left, pod)
		}
	}
	return left, nil
}

func ofDaemonSet(pod object) bool {
	for _, owner := range pod.Metadata.OwnerReferences {
		if owner.Controller && owner.Kind == "DaemonSet" {
			return true
		}
	}
	return false
}

// names lists pods as namespace/name, a few of them.
func names(pods []object) string {
	const shown = 10
	var text []string
	for _, pod := range pods[:min(shown, len(pods))] {
		text = append(text, pod.Metadata.Namespace+"/"+pod.Metadata.Name)
	}
	if more := len(pods) - shown; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, " ")
}
