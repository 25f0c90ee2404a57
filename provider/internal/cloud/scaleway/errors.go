package scaleway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
)

// ErrEmptyAnswer is a success without the object it should carry. The SDK turns
// a 2xx with an empty body into nil pointers and no error.
var ErrEmptyAnswer = errors.New("the API answered success with an empty body")

// apiError is a vendor's error with the decision it carries.
type apiError struct {
	kind error // a cloud sentinel; nil when the error is transient
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }

func (e *apiError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}

// Explain turns an SDK error into one that matches the sentinel of package
// cloud that it stands for, in the vendor's own words. An error without a
// sentinel is transient. The SDK's typed errors are pointers and carry no HTTP
// status; the others are ResponseErrors and carry nothing else.
func Explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, done := errors.AsType[*apiError](err); done {
		return err
	}
	words, kind := classify(err)
	text := words
	if kind != nil {
		text = fmt.Sprintf("%s: %s", kind, words)
	}
	return &apiError{kind: kind, text: text, err: err}
}

func classify(err error) (words string, kind error) {
	words = strings.TrimPrefix(err.Error(), "scaleway-sdk-go: ")
	var (
		quota     *scw.QuotasExceededError
		stock     *scw.OutOfStockError
		missing   *scw.ResourceNotFoundError
		expired   *scw.ResourceExpiredError
		denied    *scw.PermissionsDeniedError
		auth      *scw.DeniedAuthenticationError
		invalid   *scw.InvalidArgumentsError
		transient *scw.TransientStateError
		locked    *scw.ResourceLockedError
		precond   *scw.PreconditionFailedError
		response  *scw.ResponseError
	)
	switch {
	case errors.As(err, &quota):
		words = quotaWords(quota)
		return words, limitOf(words)
	case errors.As(err, &stock):
		return words, cloud.ErrNoCapacity
	case errors.As(err, &missing), errors.As(err, &expired):
		return words, cloud.ErrNotFound
	}
	isResponse := errors.As(err, &response)
	if isResponse {
		words = responseWords(response)
	}
	if sentence, kind := reachedLimit(err); kind != nil {
		return limitWords(words, sentence), kind
	}
	switch {
	case errors.As(err, &denied), errors.As(err, &auth):
		return words, cloud.ErrDenied
	case errors.As(err, &invalid):
		return words, cloud.ErrInvalid
	case errors.As(err, &transient), errors.As(err, &locked):
		return words, cloud.ErrConflict
	case errors.As(err, &precond):
		if precond.Precondition != "" && !strings.Contains(words, "in use") {
			words += " (" + precond.Precondition + ")"
		}
		return words, cloud.ErrConflict
	case isResponse:
		return words, classifyResponse(response)
	default:
		return words, nil
	}
}

// Unauthenticated says whether the API refused the key itself, rather than
// something that the key's owner may not do.
func Unauthenticated(err error) bool {
	if response, ok := errors.AsType[*scw.ResponseError](err); ok {
		return response.StatusCode == http.StatusUnauthorized
	}
	_, denied := errors.AsType[*scw.DeniedAuthenticationError](err)
	return denied
}

// classifyResponse judges by status, and by words only where old parts of the
// Instance API give nothing else.
func classifyResponse(e *scw.ResponseError) error {
	message := strings.ToLower(e.Message)
	switch {
	case strings.Contains(message, "server_type_unavailable"), strings.Contains(message, "out of stock"):
		return cloud.ErrNoCapacity
	case lacksCloudInit(message):
		return cloud.ErrInvalid
	}
	switch code := e.StatusCode; code {
	case http.StatusNotFound, http.StatusGone:
		return cloud.ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return cloud.ErrDenied
	case http.StatusTooManyRequests:
		return cloud.ErrThrottled
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusLocked:
		return cloud.ErrConflict
	case http.StatusBadRequest:
		// "server should be running", "instance should be powered off", "Server is not
		// delivered": a state, not a fault of the request.
		if strings.Contains(message, "should be") || strings.Contains(message, "not delivered") {
			return cloud.ErrConflict
		}
		return cloud.ErrInvalid
	default:
		if code >= 400 && code < 500 && code != http.StatusRequestTimeout {
			return cloud.ErrInvalid
		}
		return nil
	}
}

// lacksCloudInit recognises what Elastic Metal says, under a 503, of an offer
// that will never take user data.
func lacksCloudInit(message string) bool {
	return strings.Contains(strings.ToLower(message), "cloud-init is not supported")
}

// responseWords bounds the message: behind a proxy it can be a whole page.
func responseWords(e *scw.ResponseError) string {
	words := fmt.Sprintf("HTTP %d", e.StatusCode)
	if e.Resource != "" {
		words += " on " + e.Resource
	}
	if e.Message != "" && e.Message != e.Status {
		words += ": " + clip(e.Message)
	} else if text := http.StatusText(e.StatusCode); text != "" {
		words += " " + text
	}
	return words
}

func clip(s string) string {
	const limit = 300
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// quotaWords names the resource, the quota and the current use from any of the
// three bodies that the API has sent for this: with details, flat, and, from old
// parts, with a message only.
func quotaWords(e *scw.QuotasExceededError) string {
	var parts []string
	for _, d := range e.Details {
		if d.Resource != "" {
			parts = append(parts, fmt.Sprintf("%s (quota %d, in use %d)", d.Resource, d.Quota, d.Current))
		}
	}
	if len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	var flat struct {
		Message  string  `json:"message"`
		Resource string  `json:"resource"`
		Quota    *uint64 `json:"quota"`
		Current  *uint64 `json:"current"`
	}
	if json.Unmarshal(e.RawBody, &flat) != nil {
		return "the API does not say of what"
	}
	switch {
	case flat.Resource != "" && flat.Quota != nil && flat.Current != nil:
		return fmt.Sprintf("%s (quota %d, in use %d)", flat.Resource, *flat.Quota, *flat.Current)
	case flat.Resource != "":
		return flat.Resource
	case flat.Message != "":
		return clip(flat.Message)
	default:
		return "the API does not say of what"
	}
}

// Refused says whether the API surely did not do what it was asked. Anything
// else that is not a success (a 5xx, a timeout, a broken connection, an
// unreadable answer) may have been done. An error of the HTTP transport that
// matches one of the sentinels of package cloud, such as the ErrThrottled of a
// limiter of ours, says that the request was never sent.
func Refused(err error) bool {
	if response, ok := errors.AsType[*scw.ResponseError](err); ok {
		code := response.StatusCode
		return code >= 400 && code < 500 && code != http.StatusRequestTimeout || lacksCloudInit(response.Message)
	}
	for _, kind := range []error{
		cloud.ErrNotFound, cloud.ErrNoCapacity, cloud.ErrQuota, cloud.ErrThrottled,
		cloud.ErrDenied, cloud.ErrInvalid, cloud.ErrConflict,
	} {
		if errors.Is(Explain(err), kind) {
			return true
		}
	}
	return false
}
