package fakecloud

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

const (
	noBlockSecret  = "33333333-3333-4333-8333-333333333333"
	readOnlySecret = "44444444-4444-4444-8444-444444444444"
	strangerSecret = "55555555-5555-4555-8555-555555555555"
	starterSecret  = "66666666-6666-4666-8666-666666666666"
	otherProject   = "77777777-7777-4777-8777-777777777777"
)

func withKeys() Options {
	return Options{Keys: []Key{
		{AccessKey: DefaultAccessKey, SecretKey: DefaultSecretKey, ProjectIDs: []string{DefaultProjectID}},
		{AccessKey: "SCWNOBLOCK0000000000", SecretKey: noBlockSecret, PermissionSets: []string{"InstancesFullAccess"}},
		{AccessKey: "SCWREADONLY000000000", SecretKey: readOnlySecret, PermissionSets: []string{"AllProductsReadOnly"}},
		{AccessKey: "SCWSTRANGER000000000", SecretKey: strangerSecret, ProjectIDs: []string{otherProject}},
		{AccessKey: "SCWSTARTER0000000000", SecretKey: starterSecret, PermissionSets: []string{"InstancesServerStart", "InstancesServerRead"}},
	}}
}

func TestUnknownKey(t *testing.T) {
	a := serve(t, Options{})
	stranger := a.as(t, "SCWNOSUCHKEY00000000", strangerSecret)
	_, err := stranger.instance.ListServers(&instance.ListServersRequest{})
	var denied *scw.DeniedAuthenticationError
	if !errors.As(err, &denied) || denied.Method != "api_key" || denied.Reason != "not_found" {
		t.Errorf("instances: %#v", err)
	}
	if _, err = stranger.block.ListVolumes(&block.ListVolumesRequest{}); !errors.As(err, &denied) {
		t.Errorf("block: %#v", err)
	}
}

func TestPermissionSets(t *testing.T) {
	a := serve(t, withKeys())
	var denied *scw.PermissionsDeniedError

	noBlock := a.as(t, "SCWNOBLOCK0000000000", noBlockSecret)
	s := noBlock.create(t, "n")
	noBlock.mustAct(t, s.ID, instance.ServerActionPoweron)
	noBlock.mustAct(t, s.ID, instance.ServerActionTerminate)
	volume := a.Volumes()[0].ID
	if err := noBlock.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: volume}); !errors.As(err, &denied) {
		t.Errorf("InstancesFullAccess alone deletes a network volume: %#v", err)
	} else if denied.Details[0].Action != "delete" || denied.Details[0].Resource != "volume" {
		t.Errorf("details %+v", denied.Details[0])
	}
	if err := a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: volume}); err != nil {
		t.Errorf("with every right: %v", err)
	}

	s = a.create(t, "m")
	reader := a.as(t, "SCWREADONLY000000000", readOnlySecret)
	reader.get(t, s.ID)
	if _, err := reader.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, Tags: &[]string{"x"}}); !errors.As(err, &denied) {
		t.Errorf("a reader writes: %#v", err)
	}
	if err := reader.act(s.ID, instance.ServerActionPoweron); !errors.As(err, &denied) {
		t.Errorf("a reader starts: %#v", err)
	}

	starter := a.as(t, "SCWSTARTER0000000000", starterSecret)
	if err := starter.act(s.ID, instance.ServerActionPoweron); err != nil {
		t.Errorf("InstancesServerStart does not start: %v", err)
	}
	if err := starter.act(s.ID, instance.ServerActionTerminate); !errors.As(err, &denied) {
		t.Errorf("InstancesServerStart terminates: %#v", err)
	}
}

func TestProjectsAreSeparate(t *testing.T) {
	a := serve(t, withKeys())
	s := a.create(t, "mine")
	stranger := a.as(t, "SCWSTRANGER000000000", strangerSecret)
	theirs := stranger.createWith(t, &instance.CreateServerRequest{Name: "theirs", Project: new(otherProject)})

	var missing *scw.ResourceNotFoundError
	if _, err := stranger.instance.GetServer(&instance.GetServerRequest{ServerID: s.ID}); !errors.As(err, &missing) {
		t.Errorf("a stranger reads: %#v", err)
	}
	var denied *scw.PermissionsDeniedError
	_, err := stranger.instance.CreateServer(&instance.CreateServerRequest{
		CommercialType: "DEV1-S", Image: new("3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e"), Project: new(DefaultProjectID),
	})
	if !errors.As(err, &denied) || denied.Details[0].Resource != "project" {
		t.Errorf("a stranger creates: %#v", err)
	}

	// Without a project filter a key lists all it can see.
	every := a.as(t, "SCWREADONLY000000000", readOnlySecret)
	list, err := every.instance.ListServers(&instance.ListServersRequest{}, scw.WithAllPages())
	if err != nil || len(list.Servers) != 2 {
		t.Errorf("%d servers, %v, want both projects'", len(list.Servers), err)
	}
	list, err = stranger.instance.ListServers(&instance.ListServersRequest{}, scw.WithAllPages())
	if err != nil || len(list.Servers) != 1 || list.Servers[0].ID != theirs.ID {
		t.Errorf("the stranger lists %v, %v", list, err)
	}
}

func TestBadKeysPanic(t *testing.T) {
	for name, key := range map[string]Key{
		"access key": {AccessKey: "AKIA", SecretKey: DefaultSecretKey},
		"UUID":       {AccessKey: DefaultAccessKey, SecretKey: "hunter2"},
	} {
		func() {
			defer func() {
				words, _ := recover().(string)
				if !strings.Contains(words, name) || strings.Contains(words, "hunter2") {
					t.Errorf("panic %q, want one about the %s, without a secret", words, name)
				}
			}()
			New(Options{Keys: []Key{key}})
		}()
	}
}

func TestGatewayHeaders(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for _, path := range []string{"/metadata", serversPath, serversPath + "/absent"} {
		h := c.direct("GET", path, "").Header()
		if h.Get("Content-Type") != "application/json" || h.Get("X-Request-Id") == "" || !strings.HasPrefix(h.Get("Server"), "Scaleway") || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if body, want := c.direct("GET", "/metadata", "").Body.String(), `{"platform":"external","partition":"scw","domain":"scw.eu"}`; body != want {
		t.Errorf("metadata %s, want %s", body, want)
	}
	if code := c.direct("PUT", serversPath, "").Code; code != http.StatusNotFound {
		t.Errorf("PUT of a list: %d", code)
	}
}
