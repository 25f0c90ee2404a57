package scaleway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// maxAnswerBytes bounds an answer of the API. A page of 100 servers has less
// than a hundredth of it.
const maxAnswerBytes = 32 << 20

// answers reads each answer whole and refuses what the SDK would fall over: it
// reads answers of any size, and follows every element of a list unseen, a null
// too. What is refused counts as no answer at all.
type answers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the API's answer was cut off: %w", err)
	case len(body) > maxAnswerBytes:
		return nil, fmt.Errorf("the API's answer has more than %d bytes", maxAnswerBytes)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && listsNull(body):
		return nil, fmt.Errorf("the API's answer lists null; status %d", resp.StatusCode)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// mayListNull matches all texts that list null, and few others: what follows a
// comma in an object is a name.
var mayListNull = regexp.MustCompile(`[\[,][ \t\r\n]*null`)

// listsNull says whether a list in a JSON text has null as an element. A text
// that is no JSON is the SDK's to complain of.
func listsNull(body []byte) bool {
	if !mayListNull.Match(body) {
		return false
	}
	var inList []bool
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			inList = append(inList, token == json.Delim('['))
		case json.Delim(']'), json.Delim('}'):
			inList = inList[:len(inList)-1]
		case nil:
			if n := len(inList); n > 0 && inList[n-1] {
				return true
			}
		}
	}
}
