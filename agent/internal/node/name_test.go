package node

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The node is the one that the kubelet has joined as, whatever it was meant to be:
// a join without a name takes the host's.
func TestWhichNode(t *testing.T) {
	ready := map[string]any{"status": map[string]any{"conditions": []map[string]string{{"type": "Ready", "status": "True"}}}}
	for name, tt := range map[string]struct{ user, wanted, node, fault string }{
		"as wanted":               {"system:node:node-1", "node-1", "node-1", ""},
		"any name will do":        {"system:node:host-7", "", "host-7", ""},
		"joined by the host name": {"system:node:host-7", "node-1", "host-7", "joined as node host-7, not as node-1"},
		"no kubelet's":            {"kubernetes-admin", "node-1", "node-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, func(*http.Request) (int, any) { return 200, ready })
			a.cert, a.key = clientCertificate(t, tt.user)
			a.server.TLS.ClientCAs.AppendCertsFromPEM(a.cert)
			c, err := New(a.kubeconfig(t), tt.wanted)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			err = c.Ready(t.Context(), "")
			if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("Ready: %v, want %q", err, tt.fault)
			}
			if err := c.Leave(t.Context(), io.Discard); err != nil {
				t.Fatal(err)
			}
			if got := a.asked(); got[len(got)-1] != "DELETE /api/v1/nodes/"+tt.node {
				t.Errorf("asked %q, want node %s", got, tt.node)
			}
		})
	}
	a := newAPI(t, nil)
	a.cert, a.key = clientCertificate(t, "kubernetes-admin")
	if _, err := New(a.kubeconfig(t), ""); err == nil || !strings.Contains(err.Error(), "do not say which node") {
		t.Errorf("no name anywhere: %v", err)
	}
}
