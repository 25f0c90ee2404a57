package node

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReady(t *testing.T) {
	node := func(providerID string, conditions ...map[string]string) map[string]any {
		return map[string]any{"spec": map[string]string{"providerID": providerID}, "status": map[string]any{"conditions": conditions}}
	}
	ready := func(status string) map[string]string {
		return map[string]string{"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": "cni plugin not initialized"}
	}
	tests := []struct {
		name string
		code int
		body any
		want string // part of the error, "" for none
	}{
		{"ready", 200, node("scw://1", map[string]string{"type": "DiskPressure", "status": "False"}, ready("True")), ""},
		{"not ready", 200, node("scw://1", ready("False")), "Ready is False: KubeletNotReady: cni plugin not initialized"},
		{"unknown", 200, node("scw://1", ready("Unknown")), "Ready is Unknown"},
		{"no condition", 200, node("scw://1"), "no Ready condition"},
		{"other provider id", 200, node("k3s://node-1", ready("True")), `provider id "k3s://node-1", want "scw://1"`},
		{"not registered", 404, refusal("nodes \"node-1\" not found"), "not registered"},
		{"refused", 403, refusal("forbidden: no"), "403: forbidden: no"},
		{"redirected", 302, nil, "answered 302"},
		{"not an object", 200, "text", "the API server's answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(*http.Request) (int, any) { return tt.code, tt.body })
			err := a.client(t).Ready(t.Context(), "scw://1")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Ready = %v", err)
			}
			if diff := cmp.Diff([]string{"GET /api/v1/nodes/node-1"}, a.asked()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A join under the name of a node that was drained and not deleted takes pods.
func TestReadyAfterADrain(t *testing.T) {
	for _, refused := range []bool{false, true} {
		a := newAPI(t, func(r *http.Request) (int, any) {
			if r.Method == http.MethodPatch && refused {
				return 403, refusal("no")
			}
			return 200, map[string]any{
				"metadata": map[string]any{"annotations": map[string]string{"bigfleet.io/drained": "true"}},
				"status":   map[string]any{"conditions": []map[string]string{{"type": "Ready", "status": "True"}}},
			}
		})
		if err := a.client(t).Ready(t.Context(), ""); (err != nil) != refused {
			t.Errorf("refused %t: Ready = %v", refused, err)
		}
		want := `{"metadata":{"annotations":{"bigfleet.io/drained":null}},"spec":{"unschedulable":null}}`
		if got := a.sent("PATCH /api/v1/nodes/node-1"); got != want {
			t.Errorf("the patch is %s", got)
		}
	}
}

const podList = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"

func TestDrain(t *testing.T) {
	mirror := pod("static", "Node", nil)
	mirror["metadata"].(map[string]any)["annotations"] = map[string]string{"kubernetes.io/config.mirror": "x"}
	refusals := 3
	a := newAPI(t, clusterOf(map[string]map[string]any{
		"web": pod("web", "ReplicaSet", nil), "bare": pod("bare", "", nil), "log": pod("log", "DaemonSet", nil), "static": mirror,
		"done": pod("done", "Job", map[string]any{"status": map[string]string{"phase": "Succeeded"}}),
	}, func(name string) (int, any) {
		if name == "web" && refusals > 0 {
			refusals--
			return http.StatusTooManyRequests, refusal("Cannot evict pod as it would violate the pod's disruption budget.")
		}
		return 201, map[string]any{}
	}))
	if err := a.client(t).Drain(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, c := range a.asked() {
		counts[c]++
	}
	want := map[string]int{
		"PATCH /api/v1/nodes/node-1": 1, podList: 5,
		"POST /api/v1/namespaces/ns/pods/web/eviction": 4, "POST /api/v1/namespaces/ns/pods/bare/eviction": 1,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
	if got := a.sent("PATCH /api/v1/nodes/node-1"); got != `{"metadata":{"annotations":{"bigfleet.io/drained":"true"}},"spec":{"unschedulable":true}}` {
		t.Errorf("cordon: %s", got)
	}
	wantBody := `{"apiVersion":"policy/v1","deleteOptions":{"preconditions":{"uid":"uid-web"}},"kind":"Eviction","metadata":{"name":"web","namespace":"ns"}}`
	if got := a.sent("POST /api/v1/namespaces/ns/pods/web/eviction"); got != wantBody {
		t.Errorf("eviction: %s", got)
	}
}

func TestDrainFails(t *testing.T) {
	t.Parallel()
	// Ten times what a machine with ten times too much to do took to a first answer.
	const grace = 5 * time.Second
	budget := refusal("Cannot evict pod as it would violate the pod's disruption budget.")
	a := newAPI(t, clusterOf(map[string]map[string]any{"web": pod("web", "ReplicaSet", nil)}, func(string) (int, any) { return http.StatusTooManyRequests, budget }))
	err := a.client(t).Drain(t.Context(), grace)
	for _, want := range []string{"grace period is over", "1 pods are left: ns/web", "disruption budget"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Drain = %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	before := len(a.asked())
	go func() {
		for len(a.asked()) < before+4 && ctx.Err() == nil { // cordon, list, an eviction that is refused, and the list again
			time.Sleep(time.Millisecond)
		}
		cancel(errors.New("terminated"))
	}()
	if err := a.client(t).Drain(ctx, time.Hour); err == nil || !strings.Contains(err.Error(), "terminated and 1 pods are left") {
		t.Errorf("stopped: %v", err)
	}
	broken := newAPI(t, func(*http.Request) (int, any) { return 500, refusal("etcd is away") })
	if err := broken.client(t).Drain(t.Context(), grace); err == nil || !strings.Contains(err.Error(), "etcd is away") {
		t.Errorf("API server broken: %v", err)
	}
	if len(broken.asked()) < 2 {
		t.Errorf("it was asked once only: %q", broken.asked())
	}
}

func TestDrainByForce(t *testing.T) {
	a := newAPI(t, clusterOf(map[string]map[string]any{"web": pod("web", "ReplicaSet", nil)}, func(string) (int, any) { return 200, nil }))
	if err := a.client(t).Drain(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PATCH /api/v1/nodes/node-1", podList, "DELETE /api/v1/namespaces/ns/pods/web", podList}, a.asked()); diff != "" {
		t.Error(diff)
	}
}

func TestDrainOfAnAbsentNode(t *testing.T) {
	a := newAPI(t, func(*http.Request) (int, any) { return 404, refusal("not found") })
	if err := a.client(t).Drain(t.Context(), time.Minute); err != nil || len(a.asked()) != 1 {
		t.Errorf("Drain = %v, calls %q", err, a.asked())
	}
}

// What is on its way out is waited for and not asked again.
func TestDrainWaitsForTheEnd(t *testing.T) {
	ending := pod("web", "ReplicaSet", nil)
	ending["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-29T12:00:00Z"
	pods := map[string]map[string]any{"web": ending}
	lists := 0
	answer := clusterOf(pods, func(string) (int, any) { return 500, nil })
	a := newAPI(t, func(r *http.Request) (int, any) {
		if r.Method == http.MethodGet {
			if lists++; lists == 3 {
				delete(pods, "web")
			}
		}
		return answer(r)
	})
	if err := a.client(t).Drain(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PATCH /api/v1/nodes/node-1", podList, podList, podList}, a.asked()); diff != "" {
		t.Error(diff)
	}
}

func TestLeave(t *testing.T) {
	const del, patch = "DELETE /api/v1/nodes/node-1", "PATCH /api/v1/nodes/node-1/status"
	tests := []struct {
		name        string
		del, patch  int
		calls       []string
		out, failed string
	}{
		{"deleted", 200, 500, []string{del}, "", ""},
		{"gone", 404, 500, []string{del}, "", ""},
		{"may not", 403, 200, []string{del, patch}, "may not delete it", ""},
		{"may not, and gone", 403, 404, []string{del, patch}, "", ""},
		{"may nothing", 403, 403, []string{del, patch}, "", "cannot be marked"},
		{"broken", 500, 200, []string{del}, "", "cannot be deleted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(r *http.Request) (int, any) {
				if r.Method == http.MethodDelete {
					return tt.del, refusal("x")
				}
				return tt.patch, refusal("x")
			})
			var out bytes.Buffer
			err := a.client(t).Leave(t.Context(), &out)
			if (err != nil) != (tt.failed != "") || err != nil && !strings.Contains(err.Error(), tt.failed) {
				t.Errorf("Leave = %v", err)
			}
			if !strings.Contains(out.String(), tt.out) {
				t.Errorf("output %q", out.String())
			}
			if diff := cmp.Diff(tt.calls, a.asked()); diff != "" {
				t.Error(diff)
			}
			if body := a.sent(patch); tt.patch == 200 && body != "" && !strings.Contains(body, `"status":"False","type":"Ready"`) {
				t.Errorf("the patch is %s", body)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	a := newAPI(t, func(*http.Request) (int, any) { return 200, nil })
	text := func(server, ca, cert string) string {
		return "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: \"" + server +
			"\", certificate-authority-data: \"" + ca + "\"}}]\nusers: [{name: u, user: {client-certificate-data: \"" + cert + "\", client-key-data: \"" +
			base64.StdEncoding.EncodeToString(a.key) + "\"}}]\n"
	}
	ca, cert := base64.StdEncoding.EncodeToString(a.ca()), base64.StdEncoding.EncodeToString(a.cert)
	if _, err := parse([]byte(text("https://10.0.0.1:6443", ca, cert)), "/"); err != nil {
		t.Errorf("a good file: %v", err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":         {"", "has no cluster"},
		"not YAML":      {"\tsecret", "not a kubeconfig"},
		"plain http":    {text("http://10.0.0.1", ca, cert), "not https"},
		"no CA":         {text("https://10.0.0.1", "", cert), "certificate-authority: missing"},
		"CA of nothing": {text("https://10.0.0.1", "eA==", cert), "holds no PEM certificate"},
		"damaged CA":    {text("https://10.0.0.1", base64.StdEncoding.EncodeToString(append(a.ca()[1:], a.ca()...)), cert), "certificate-authority: block 1"},
		"not base64":    {text("https://10.0.0.1", "!", cert), "not base64"},
		"no context":    {strings.Replace(text("https://10.0.0.1", ca, cert), "current-context: c", "current-context: d", 1), `"d" has no`},
		"wrong pair":    {text("https://10.0.0.1", ca, ca), "client-certificate"},
	} {
		_, err := parse([]byte(tt.text), "/")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New("/no/such/file", "node-1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
