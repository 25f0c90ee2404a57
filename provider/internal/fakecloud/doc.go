// Package fakecloud is an HTTP server that speaks Scaleway's public API as far
// as a fleet of Instances and what sets it up need it: Instances v1, Block
// Storage v1 (and v1alpha1, which has the same bodies), Marketplace v2, Elastic
// Metal v1, private networks of VPC v2, IAM v1alpha1, projects of Account v3 and
// the gateway's /metadata, over one inventory in memory. The vendor's own clients work against
// it when SCW_API_URL names it. A second handler is the metadata service that
// guests ask.
//
// Bodies, status codes, headers, paging, filters, the state machine and its
// timings follow recordings of the real API; a comment marks each place where
// no recording exists and the answer is inferred. What a machine fleet can get
// wrong is kept on purpose: names are not unique, a server that goes leaves its
// network volumes behind, a power-on claims stock only when it happens, user
// data set after the first power-on reaches nobody.
//
// The pieces:
//
//	server.go     routes, the life of one request, headers, the record of calls
//	auth.go       keys, permission sets, project visibility
//	errors.go     every error body
//	faults.go     the switchboard: which call fails, how, and how often
//	replies.go    ready-made answers for it
//	switches.go   standing misbehaviour: stock, quotas, lags, delays
//	control*.go   all of that over HTTP, below /debug/; script.go reads bodies
//	inventory.go  what exists, and the indexes that keep lists cheap
//	states.go     the state machine; timers.go owns every pending transition
//	existing.go   servers that an earlier process made
//	inspect.go    the inventory as Go values
//	metadata*.go  what a guest finds about itself; guests.go tells which asks
//
// The products are in instances_*.go, addresses.go, volumes.go (what both planes
// share, and the local one), block*.go, images.go, marketplace.go, catalog.go,
// metal_*.go, vpc.go, iam*.go and account.go.
//
// One mutex guards everything. It is held for map look-ups and small copies,
// never for encoding an answer or for I/O on a connection.
package fakecloud
