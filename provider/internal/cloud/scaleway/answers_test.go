package scaleway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAnswersThatTheSDKWouldFallOver are no answers.
func TestAnswersThatTheSDKWouldFallOver(t *testing.T) {
	answer := func(kind string, body io.Reader) error {
		a := answers{roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body)}, nil
		})}
		resp, err := a.RoundTrip(nil)
		if err == nil {
			return resp.Body.Close()
		}
		return err
	}
	for body, want := range map[string]string{
		`{"servers":[{"id":"x","image":null,"tags":["a,null","[null"]}],"total_count":1}`: "",
		`{"servers":null}`: "", `[]`: "", `null`: "", ``: "", `[`: "", `{"a":[1,`: "", "<html>": "",
		`{"servers":[null]}`: "lists null", `{"servers":[{"id":"x"}, null]}`: "lists null", "[\n null]": "lists null", `{"a":{"b":[[],[null]]}}`: "lists null",
	} {
		err := answer("application/json", strings.NewReader(body))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	if err := answer("text/plain", strings.NewReader("[null]")); err != nil {
		t.Errorf("user data: %v", err)
	}
	if err := answer("application/json", io.MultiReader(strings.NewReader("{"), broken{})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that is cut off: %v", err)
	}
	if err := answer("application/json", endless{}); err == nil || !strings.Contains(err.Error(), "more than 33554432 bytes") {
		t.Errorf("an endless answer: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
