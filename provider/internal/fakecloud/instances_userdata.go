package fakecloud

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
)

const plainText = "text/plain"

// serverPlain finds the server for a user-data call, where even the 404 with a
// JSON body says text/plain, so that the SDK cannot decode it.
func (c *Cloud) serverPlain(q *request) (*server, error) {
	s, err := c.server(q)
	if ae, refused := errors.AsType[*apiError](err); refused {
		ae.contentType = plainText
	}
	return s, err
}

func noUserData() error { return &apiError{status: http.StatusNotFound, contentType: plainText} }

func (c *Cloud) listUserData(q *request) (*response, error) {
	s, err := c.serverPlain(q)
	if err != nil {
		return nil, err
	}
	return ok(struct {
		UserData []string `json:"user_data"`
	}{nonNil(slices.Sorted(maps.Keys(s.userData)))})
}

func (c *Cloud) getUserData(q *request) (*response, error) {
	s, err := c.serverPlain(q)
	if err != nil {
		return nil, err
	}
	data, found := s.userData[q.PathValue("key")]
	if !found {
		return nil, noUserData()
	}
	return &response{status: http.StatusOK, text: data, contentType: plainText}, nil
}

// setUserData is accepted in every state. What arrives after the first
// power-on is stored and reaches no guest.
func (c *Cloud) setUserData(q *request) (*response, error) {
	s, err := c.serverPlain(q)
	if err != nil {
		return nil, err
	}
	s.userData[q.PathValue("key")] = bytes.Clone(q.body)
	return noContent()
}

func (c *Cloud) deleteUserData(q *request) (*response, error) {
	s, err := c.serverPlain(q)
	if err != nil {
		return nil, err
	}
	if _, found := s.userData[q.PathValue("key")]; !found {
		return nil, noUserData()
	}
	delete(s.userData, q.PathValue("key"))
	return noContent()
}
