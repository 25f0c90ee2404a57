package scaleway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

const (
	accessKey = "SCWXXXXXXXXXXXXXXXXX"
	secretKey = "11111111-1111-4111-8111-111111111111"
	projectID = "22222222-2222-4222-8222-222222222222"
	serverID  = "33333333-3333-4333-8333-333333333333"
)

func client(t *testing.T, h http.Handler, adjust ...func(*scaleway.ClientConfig)) *scw.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	cfg := scaleway.ClientConfig{
		AccessKey: accessKey, SecretKey: secretKey, ProjectID: projectID,
		Zone: "fr-par-1", APIURL: srv.URL + "/", Version: "1.2.3", HTTP: srv.Client(),
	}
	for _, f := range adjust {
		f(&cfg)
	}
	c, err := scaleway.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the client reads all of it or fails the test
	}
}

// The bodies are those that the API has sent, through the SDK's own decoding.
func TestExplain(t *testing.T) {
	const plain, json = "text/plain", "application/json"
	for name, tc := range map[string]struct {
		status      int
		contentType string
		body        string
		want        error // nil: transient
		words       string
		refused     bool
	}{
		"bad key":              {401, json, `{"message":"authentication is denied","method":"api_key","reason":"not_found","type":"denied_authentication"}`, cloud.ErrDenied, "API key does not exist", true},
		"no right":             {403, json, `{"details":[{"action":"read","resource":"project"}],"message":"insufficient permissions","type":"permissions_denied"}`, cloud.ErrDenied, "read project", true},
		"quota, legacy":        {403, json, `{"type":"invalid_request_error","message":"Quota exceeded for this resource."}`, cloud.ErrQuota, "Quota exceeded for this resource.", true},
		"quota, details":       {403, json, `{"details":[{"current":10,"quota":10,"resource":"instances_gp1_xs"}],"message":"quota(s) exceeded for this resource","type":"quotas_exceeded"}`, cloud.ErrQuota, "instances_gp1_xs (quota 10, in use 10)", true},
		"quota, flat":          {403, json, `{"type":"quotas_exceeded","message":"Quota exceeded for this resource.","resource":"cp_servers_type_L40S_1_48G","quota":0,"current":0}`, cloud.ErrQuota, "cp_servers_type_L40S_1_48G (quota 0, in use 0)", true},
		"quota, bare":          {403, json, `{"type":"quotas_exceeded"}`, cloud.ErrQuota, "does not say", true},
		"out of stock":         {412, json, `{"type":"out_of_stock","message":"out of stock","resource":"L40S-1-48G"}`, cloud.ErrNoCapacity, "L40S-1-48G", true},
		"type unavailable":     {400, json, `{"message":"server_type_unavailable"}`, cloud.ErrNoCapacity, "server_type_unavailable", true},
		"missing server":       {404, json, `{"type": "not_found", "message": "resource is not found", "resource": "instance_server", "resource_id": "x"}`, cloud.ErrNotFound, "instance_server", true},
		"missing, old":         {404, json, `{"type":"unknown_resource","message":"\"` + serverID + `\" not found"}`, cloud.ErrNotFound, serverID, true},
		"missing, empty":       {404, plain, "", cloud.ErrNotFound, "404", true},
		"missing, html":        {404, "text/html", "<h1>introuvable</h1>", cloud.ErrNotFound, "404", true},
		"gone":                 {410, json, `{"message":"resource is gone"}`, cloud.ErrNotFound, "410", true},
		"missing keys":         {400, json, `{"type":"invalid_arguments","message":"invalid argument(s)","details":[{"argument_name":"image","reason":"required","help_message":"required key not provided"}]}`, cloud.ErrInvalid, "image is required", true},
		"in use":               {400, json, `{"type":"precondition_failed","message":"precondition is not respected","precondition":"resource_still_in_use","help_message":"instance should be powered off"}`, cloud.ErrConflict, "instance should be powered off", true},
		"protected":            {400, json, `{"type":"precondition_failed","precondition":"protected_resource","help_message":"server is protected"}`, cloud.ErrConflict, "protected", true},
		"wrong state, old":     {400, json, `{"type":"invalid_request_error","message":"server should be running"}`, cloud.ErrConflict, "server should be running", true},
		"transient state":      {409, json, `{"current_state":"updating","message":"resource is in a transient state","resource":"group","resource_id":"x","type":"transient_state"}`, cloud.ErrConflict, "updating", true},
		"exists":               {409, json, `{"message":"resource already exists","type":"already_exists"}`, cloud.ErrConflict, "already exists", true},
		"locked":               {423, json, `{"type":"locked","resource":"instance_server","resource_id":"x"}`, cloud.ErrConflict, "locked", true},
		"rate limited":         {429, "", "", cloud.ErrThrottled, "429", true},
		"internal":             {503, json, `{"message":"internal error"}`, nil, "internal error", false},
		"proxy":                {502, "text/html", strings.Repeat("<p>bad gateway</p>", 1000), nil, "502", false},
		"gateway timeout":      {504, plain, "", nil, "504", false},
		"request timeout":      {408, plain, "", nil, "408", false},
		"redirect":             {302, plain, "", nil, "302", false},
		"unreadable":           {200, json, `{"server":`, nil, "could not parse", false},
		"unreadable complaint": {400, json, `<`, nil, "could not parse", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := instance.NewAPI(client(t, answer(tc.status, tc.contentType, tc.body)))
			_, err := api.GetServer(&instance.GetServerRequest{ServerID: serverID})
			if err == nil {
				t.Fatal("the SDK saw no error")
			}
			got := scaleway.Explain(err)
			for _, kind := range []error{
				cloud.ErrNotFound, cloud.ErrNoCapacity, cloud.ErrQuota, cloud.ErrThrottled,
				cloud.ErrDenied, cloud.ErrInvalid, cloud.ErrConflict,
			} {
				if is := errors.Is(got, kind); is != errors.Is(tc.want, kind) {
					t.Errorf("%q is %q: %t", got, kind, is)
				}
			}
			if !strings.Contains(got.Error(), tc.words) || strings.Contains(got.Error(), "scaleway-sdk-go") || len(got.Error()) > 500 {
				t.Errorf("error %q, want the vendor's words %q in few", got, tc.words)
			}
			if !errors.Is(got, err) {
				t.Error("the SDK's error is lost")
			}
			if again := scaleway.Explain(got); again != got { //nolint:errorlint // identity is the point
				t.Errorf("explained twice: %q", again)
			}
			if refused := scaleway.Refused(err); refused != tc.refused {
				t.Errorf("Refused(%q) = %t, want %t", err, refused, tc.refused)
			}
		})
	}
}

type held struct{}

// RoundTrip implements http.RoundTripper.
func (held) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("our own limit: %w", cloud.ErrThrottled)
}

// What our own limiter holds back was never sent.
func TestHeldBackIsRefused(t *testing.T) {
	api := instance.NewAPI(client(t, http.NotFoundHandler(), func(cfg *scaleway.ClientConfig) { cfg.HTTP = &http.Client{Transport: held{}} }))
	_, err := api.GetServer(&instance.GetServerRequest{ServerID: serverID})
	if !errors.Is(scaleway.Explain(err), cloud.ErrThrottled) || !scaleway.Refused(err) {
		t.Errorf("a request that was held back: %v, refused %t", scaleway.Explain(err), scaleway.Refused(err))
	}
}

func TestExplainLeavesCancellation(t *testing.T) {
	api := instance.NewAPI(client(t, answer(200, "application/json", "{}")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := api.GetServer(&instance.GetServerRequest{ServerID: serverID}, scw.WithContext(ctx))
	if got := scaleway.Explain(err); !errors.Is(got, context.Canceled) || scaleway.Refused(err) {
		t.Errorf("a cancelled call: %v, refused %t", got, scaleway.Refused(err))
	}
	if scaleway.Explain(nil) != nil {
		t.Error("no error was explained")
	}
}
