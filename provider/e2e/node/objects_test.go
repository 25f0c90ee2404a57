package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// metadata is what the tests read of any object.
type metadata struct {
	Name   string            `json:"name"`
	UID    string            `json:"uid"`
	Labels map[string]string `json:"labels"`
}

// node is what they read of a Node.
type node struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		ProviderID    string `json:"providerID"`
		Unschedulable bool   `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct {
	Type              string    `json:"type"`
	Status            string    `json:"status"`
	Reason            string    `json:"reason"`
	LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
}

// ready is the node's Ready condition, zero when it has none.
func (n node) ready() condition {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c
		}
	}
	return condition{}
}

// pod is what they read of a Pod.
type pod struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Conditions        []condition `json:"conditions"`
		ContainerStatuses []struct {
			RestartCount int  `json:"restartCount"`
			Ready        bool `json:"ready"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// running tells whether the pod's container runs.
func (p pod) running() bool {
	return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
}

// restarts is how often its container was started again.
func (p pod) restarts() int {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// connect makes the client, with the administrator's credentials.
func (c *cluster) connect(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				CA []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(config.Users[0].User.Cert, config.Users[0].User.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
	}}
}

// try reads an object, or any answer that is fine with a nil out.
func (c *cluster) try(t *testing.T, path string, out any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}

// nodes lists the cluster's nodes.
func (c *cluster) nodes(t *testing.T) []node {
	t.Helper()
	c.check(t)
	var list struct {
		Items []node `json:"items"`
	}
	if err := c.try(t, "/api/v1/nodes", &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// node is the node of a name; a zero one while the cluster has none.
func (c *cluster) node(t *testing.T, name string) node {
	t.Helper()
	for _, n := range c.nodes(t) {
		if n.Metadata.Name == name {
			return n
		}
	}
	return node{}
}

// pods lists the pods of the default namespace.
func (c *cluster) pods(t *testing.T) []pod {
	t.Helper()
	c.check(t)
	var list struct {
		Items []pod `json:"items"`
	}
	if err := c.try(t, "/api/v1/namespaces/default/pods", &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
