package scaleway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// TestLimits: a limit is told from a missing right, a bad request and a busy object
// by what the body says, and the limit on servers from the others.
func TestLimits(t *testing.T) {
	const (
		servers = iota + 1 // cloud.ErrQuota: of the type
		others             // cloud.ErrLimit
		none
	)
	for _, tc := range []struct {
		status int
		body   string
		want   int
	}{
		{403, `{"type":"server_limit_reached","message":"Primary IP limit reached"}`, others},
		{403, `{"type":"server_limit_reached","message":"Server limit reached"}`, servers},
		{403, `{"type":"server_limit_reached"}`, servers},
		{403, `{"type":"resource_limit_exceeded","message":"Primary IP limit exceeded"}`, others},
		{403, `{"type":"resource_limit_exceeded","message":"server limit exceeded"}`, servers},
		{403, `{"error":"quota exceeded"}`, servers},
		{403, `{"type":"permissions_denied","message":"the project has reached its limit of flexible IPs"}`, others},
		{403, `{"type":"quotas_exceeded","message":"Quota exceeded for this resource.","resource":"instance_ips","quota":20,"current":20}`, others},
		{403, `{"type":"quotas_exceeded","details":[{"resource":"block_volumes","quota":9,"current":9}]}`, others},
		{403, `{"type":"quotas_exceeded","details":[{"resource":"instances_gp1_xs","quota":9,"current":9}]}`, servers},
		{400, `{"type":"invalid_request_error","message":"maximum number of private NICs reached"}`, others},
		{400, `{"type":"invalid_request_error","message":"private network is full"}`, others},
		{400, `{"type":"invalid_request_error","fields":{"private_network_id":["no free IP address"]}}`, others},
		{400, `{"type":"invalid_arguments","details":[{"argument_name":"private_network_id","reason":"constraint","help_message":"no more IPs available in the subnet"}]}`, others},
		{409, `{"type":"conflict","message":"network full"}`, others},
		{409, `{"type":"already_exists","message":"not enough available IPs"}`, others},
		{409, `{"type":"transient_state","message":"the address pool of the private network is exhausted","current_state":"updating"}`, others},
		{412, `{"type":"precondition_failed","precondition":"network_full"}`, others},
		{412, `{"type":"precondition_failed","help_message":"IP addresses of the subnet are all in use"}`, others},
		{412, `{"message":"too many servers in the project"}`, servers},
		{412, `{"type":"precondition_failed","precondition":"max_servers_reached"}`, servers},
		{403, `{"type":"denied","message":"You have exceeded the allowed number of flexible IPs"}`, others},
		{403, `{"type":"denied","message":"the number of servers exceeds what is allowed"}`, servers},
		{403, `{"type":"denied","message":"the quota of IPs is 0"}`, others},
		{403, `{"type":"denied","message":"You've used all of your 10 servers"}`, servers},
		{403, `{"type":"resource_exhausted"}`, servers},
		{400, `{"message":"You can't create more than 10 instances"}`, servers},
		{400, `{"message":"cannot attach more private NICs"}`, others},
		{400, `{"message":"cannot allocate an address: the pool is depleted"}`, others},

		{403, `{"type":"permissions_denied","message":"insufficient permissions","details":[{"resource":"private_network","action":"write"}]}`, none},
		{429, `{"message":"limit of 3600 requests per hour reached"}`, none},
		{403, `{"message":"rate limit exceeded"}`, none},
		{404, `{"type":"not_found","resource":"private_network","resource_id":"full"}`, none},
		{400, `{"type":"invalid_arguments","details":[{"argument_name":"volumes","reason":"constraint","help_message":"the total size exceeds the limit of 40 GB"}]}`, none},
		{400, `{"message":"the name exceeds the maximum length of 63"}`, none},
		{400, `{"message":"the server has no public IP"}`, none},
		{400, `{"message":"the number of characters exceeds 63"}`, none},
		{403, `{"message":"cannot create servers"}`, none},
		{412, `{"type":"precondition_failed","precondition":"resource_still_in_use","help_message":"the private network is in use"}`, none},
		{412, `{"type":"out_of_stock","message":"out of stock","resource":"L40S-1-48G"}`, none},
		{503, `{"message":"No free IP address"}`, none},
	} {
		t.Run(fmt.Sprint(tc.status, " ", tc.body), func(t *testing.T) {
			t.Parallel()
			api := instance.NewAPI(client(t, answer(tc.status, "application/json", tc.body)))
			_, err := api.GetServer(&instance.GetServerRequest{ServerID: serverID})
			got := scaleway.Explain(err)
			if limit := errors.Is(got, cloud.ErrQuota); limit != (tc.want != none) {
				t.Errorf("%q is a limit: %t", got, limit)
			}
			if limit := errors.Is(got, cloud.ErrLimit); limit != (tc.want == others) {
				t.Errorf("%q is a limit on something else than servers: %t", got, limit)
			}
			if tc.want == none {
				return
			}
			for _, kind := range []error{cloud.ErrDenied, cloud.ErrInvalid, cloud.ErrConflict, cloud.ErrNotFound, cloud.ErrThrottled} {
				if errors.Is(got, kind) {
					t.Errorf("%q is %q too", got, kind)
				}
			}
			if !scaleway.Refused(err) {
				t.Error("it may have been done")
			}
			if text := strings.ToLower(got.Error()); !strings.Contains(text, "limit") && !strings.Contains(text, "quota") {
				t.Errorf("%q does not say that a limit is reached", got)
			}
		})
	}
}

func TestLimitOfOneThing(t *testing.T) {
	bare := fmt.Errorf("%w: of this resource", cloud.ErrQuota)
	err := scaleway.Limit(bare, "do this")
	if !errors.Is(err, cloud.ErrLimit) || !errors.Is(err, bare) || cloud.Advice(err) != "do this" {
		t.Errorf("%v, advice %q", err, cloud.Advice(err))
	}
	for _, other := range []error{nil, cloud.ErrDenied} {
		if got := scaleway.Limit(other, "do this"); got != other { //nolint:errorlint // identity is the point
			t.Errorf("%v became %v", other, got)
		}
	}
}
