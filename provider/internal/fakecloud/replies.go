package fakecloud

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Reply is a complete answer.
type Reply struct {
	Status      int
	ContentType string      // "" sends none
	Header      http.Header // added to the gateway's; a nil value takes one of those away
	Body        string
}

// RateLimited is the recorded 429: no body, no content type and no hint when
// to come back.
func RateLimited() *Reply {
	return &Reply{Status: http.StatusTooManyRequests, Header: http.Header{
		"X-Envoy-Ratelimited": {"true"},
		// It comes from before the gateway, which adds these to all other answers.
		"Strict-Transport-Security": nil, "Content-Security-Policy": nil,
		"X-Content-Type-Options": nil, "X-Frame-Options": nil,
	}}
}

// Unavailable is the recorded 503, JSON without a type.
func Unavailable() *Reply {
	return jsonReply(http.StatusServiceUnavailable, `{"message":"internal error"}`)
}

// BadGateway is a proxy's HTML page.
func BadGateway() *Reply {
	return &Reply{Status: http.StatusBadGateway, ContentType: "text/html", Body: "<html><body><h1>502 Bad Gateway</h1></body></html>\n"}
}

// Empty is a success without a body, which the SDK turns into nil pointers.
func Empty() *Reply { return &Reply{Status: http.StatusOK, ContentType: "application/json"} }

// OutOfStock is the refusal of a power-on.
func OutOfStock(commercialType string) *Reply {
	return jsonReply(http.StatusPreconditionFailed,
		`{"type":"out_of_stock","message":"out of stock","resource":`+strconv.Quote(commercialType)+`}`)
}

// Forbidden is a 403 as a fresh key gets it for up to two minutes, now and then.
func Forbidden(resource, action string) *Reply {
	return jsonReply(http.StatusForbidden, `{"details":[{"action":`+strconv.Quote(action)+`,"resource":`+strconv.Quote(resource)+`}],`+
		`"message":"insufficient permissions","type":"permissions_denied"}`)
}

// Transient is the 409 of an object that is busy.
func Transient(resource, id, state string) *Reply {
	return jsonReply(http.StatusConflict, `{"current_state":`+strconv.Quote(state)+`,"message":"resource is in a transient state",`+
		`"resource":`+strconv.Quote(resource)+`,"resource_id":`+strconv.Quote(id)+`,"type":"transient_state"}`)
}

// QuotaLegacy is the oldest of three bodies that all say quota. Each decodes
// differently in the SDK.
func QuotaLegacy() *Reply {
	return jsonReply(http.StatusForbidden, `{"type":"invalid_request_error","message":"Quota exceeded for this resource."}`)
}

// QuotaStandard lists details.
func QuotaStandard(resource string) *Reply {
	return jsonReply(http.StatusForbidden, `{"details":[{"current":10,"quota":10,"resource":`+strconv.Quote(resource)+`}],`+
		`"message":"quota(s) exceeded for this resource","type":"quotas_exceeded"}`)
}

// QuotaFlat is what Instances answer since 2026.
func QuotaFlat(resource string) *Reply {
	return jsonReply(http.StatusForbidden, `{"type":"quotas_exceeded","message":"Quota exceeded for this resource.",`+
		`"resource":`+strconv.Quote(resource)+`,"quota":0,"current":0}`)
}

// AddressLimit is a limit under a 403 and a type of its own: nothing in it but the
// words tells it from a key that may not.
func AddressLimit() *Reply {
	return jsonReply(http.StatusForbidden, `{"type":"server_limit_reached","message":"Primary IP limit reached"}`)
}

// NetworkFull is what a private network without a free address answers: 400, 409 or
// 412, each in the body that the API has for that status.
func NetworkFull(status int) *Reply {
	switch status {
	case http.StatusConflict:
		return jsonReply(status, `{"type":"conflict","message":"private network is full","resource":"private_network"}`)
	case http.StatusPreconditionFailed:
		return jsonReply(status, `{"type":"precondition_failed","message":"precondition is not respected","precondition":"unknown_precondition",`+
			`"help_message":"no available IP address left in the private network"}`)
	default:
		return jsonReply(http.StatusBadRequest, `{"type":"invalid_arguments","message":"invalid argument(s)","details":[{"argument_name":"private_network_id",`+
			`"reason":"constraint","help_message":"the subnet of the private network is full"}]}`)
	}
}

func jsonReply(status int, body string) *Reply {
	return &Reply{Status: status, ContentType: "application/json", Body: body}
}

// InternalError is a 500, JSON without a type.
func InternalError() *Reply {
	return jsonReply(http.StatusInternalServerError, `{"message":"internal error"}`)
}

// readyReplies are the replies above under the names that a script uses, in the
// order in which an error lists them. Each takes what it needs from the script.
var readyReplies = []struct {
	name string
	make func(replyScript) *Reply
}{
	{"rate_limited", func(replyScript) *Reply { return RateLimited() }},
	{"unavailable", func(replyScript) *Reply { return Unavailable() }},
	{"internal_error", func(replyScript) *Reply { return InternalError() }},
	{"bad_gateway", func(replyScript) *Reply { return BadGateway() }},
	{"empty", func(replyScript) *Reply { return Empty() }},
	{"out_of_stock", func(s replyScript) *Reply { return OutOfStock(s.Resource) }},
	{"forbidden", func(s replyScript) *Reply { return Forbidden(s.Resource, s.Action) }},
	{"transient", func(s replyScript) *Reply { return Transient(s.Resource, s.ID, s.State) }},
	{"quota_legacy", func(replyScript) *Reply { return QuotaLegacy() }},
	{"quota_standard", func(s replyScript) *Reply { return QuotaStandard(s.Resource) }},
	{"quota_flat", func(s replyScript) *Reply { return QuotaFlat(s.Resource) }},
	{"address_limit", func(replyScript) *Reply { return AddressLimit() }},
	{"network_full_400", func(replyScript) *Reply { return NetworkFull(http.StatusBadRequest) }},
	{"network_full_409", func(replyScript) *Reply { return NetworkFull(http.StatusConflict) }},
	{"network_full_412", func(replyScript) *Reply { return NetworkFull(http.StatusPreconditionFailed) }},
}

// readyReply finds a ready-made reply by its name.
func readyReply(s replyScript) (*Reply, error) {
	var names []string
	for _, r := range readyReplies {
		if r.name == s.Name {
			return r.make(s), nil
		}
		names = append(names, r.name)
	}
	return nil, fmt.Errorf("reply %q: want one of %s", s.Name, strings.Join(names, ", "))
}
