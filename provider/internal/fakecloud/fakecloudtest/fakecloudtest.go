// Package fakecloudtest has the vendor's SDK talk to a fake cloud over HTTP, set
// up as the provider sets it up, for tests of what is built on it.
package fakecloudtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// Serve serves the cloud until the test ends, and returns its URL.
func Serve(t *testing.T, c *fakecloud.Cloud) string {
	t.Helper()
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(srv.Close)
	return srv.URL
}

// Client returns a client with the key of the fake's own account. wrap, if not
// nil, returns a transport around the one it is given.
func Client(t *testing.T, url, zone string, wrap func(http.RoundTripper) http.RoundTripper) *scw.Client {
	t.Helper()
	direct := &http.Transport{}
	t.Cleanup(direct.CloseIdleConnections)
	var transport http.RoundTripper = direct
	if wrap != nil {
		transport = wrap(direct)
	}
	client, err := scaleway.NewClient(scaleway.ClientConfig{
		AccessKey: fakecloud.DefaultAccessKey,
		SecretKey: fakecloud.DefaultSecretKey,
		ProjectID: fakecloud.DefaultProjectID,
		Zone:      zone,
		APIURL:    url,
		Version:   "test",
		HTTP:      &http.Client{Transport: transport, Timeout: 5 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// LoseAnswer has the cloud carry out the call that changes something after n
// others, and hang up instead of answering. The result says whether it came to
// that.
func LoseAnswer(c *fakecloud.Cloud, n int) (lost func() bool) {
	var calls atomic.Int64
	c.Inject(fakecloud.Fault{
		Match: func(r fakecloud.Request) bool {
			if strings.HasPrefix(r.Route, http.MethodGet) {
				return false
			}
			calls.Add(1)
			return true
		},
		Skip: n, Commit: true, Hangup: true,
	})
	return func() bool { return calls.Load() > int64(n) }
}
