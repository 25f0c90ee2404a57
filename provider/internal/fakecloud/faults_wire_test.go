package fakecloud

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// What happens to a connection, as the vendor's client sees it.
func TestBrokenConnections(t *testing.T) {
	a := serve(t, Options{})
	create := func() error {
		_, err := a.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "PLAY2-NANO", Image: new("ubuntu_noble")})
		return err
	}
	for _, tt := range []struct {
		name    string
		fault   Fault
		want    error
		servers int
	}{
		{"hang up", Fault{Hangup: true}, io.EOF, 0},
		{"hang up once it is done", Fault{Hangup: true, Commit: true}, io.EOF, 1},
		{"reset", Fault{Reset: true}, syscall.ECONNRESET, 0},
		{"reset once it is done", Fault{Reset: true, Commit: true}, syscall.ECONNRESET, 1},
		{"cut after 20 bytes", Fault{HangupAfter: 20}, io.ErrUnexpectedEOF, 1},
		{"a reply cut after 20 bytes", Fault{HangupAfter: 20, Reply: Unavailable()}, io.ErrUnexpectedEOF, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(a.Servers())
			tt.fault.Route = RouteCreateServer
			a.Inject(tt.fault)
			if err := create(); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if made := len(a.Servers()) - before; made != tt.servers {
				t.Errorf("%d servers made, want %d", made, tt.servers)
			}
			number := a.Faults()[len(a.Faults())-1].Number
			eventually(t, "the call is recorded with its fault", func() bool { // the client may see the end first
				return slices.ContainsFunc(a.Calls(), func(c Call) bool { return c.Fault == number && c.Route == RouteCreateServer })
			})
		})
	}
	if err := create(); err != nil {
		t.Errorf("after all faults: %v", err)
	}
}

// A client with a time limit gives up on an answer; with Commit the work is
// done all the same.
func TestSlowerThanTheClient(t *testing.T) {
	a := serve(t, Options{})
	httpClient := &http.Client{Transport: &http.Transport{}, Timeout: time.Second} // for a call to arrive
	defer httpClient.CloseIdleConnections()
	client, err := scw.NewClient(scw.WithAPIURL(a.url), scw.WithAuth(DefaultAccessKey, DefaultSecretKey), scw.WithHTTPClient(httpClient),
		scw.WithDefaultProjectID(DefaultProjectID), scw.WithDefaultZone(zone))
	if err != nil {
		t.Fatal(err)
	}
	for made, commit := range []bool{false, true} {
		a.Inject(Fault{Route: RouteCreateServer, Delay: time.Minute, Commit: commit})
		_, err := instance.NewAPI(client).CreateServer(&instance.CreateServerRequest{CommercialType: "PLAY2-NANO", Image: new("ubuntu_noble")})
		if err == nil || !strings.Contains(err.Error(), "Client.Timeout") {
			t.Errorf("error %v, want the client's own", err)
		}
		if len(a.Servers()) != made {
			t.Errorf("%d servers, want %d", len(a.Servers()), made)
		}
	}
}
