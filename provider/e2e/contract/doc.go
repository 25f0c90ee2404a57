// Package contract holds the rules of the CapacityProvider service as tests
// that know nothing of a server but its port. By default they build and start
// the provider of this repository on the fake backend. The compiled binary can
// be pointed at any server:
//
//	go test -c -o contract ./provider/e2e/contract
//	./contract -test.v -target host:port
//
// With -substrate elastic-metal the provider that is started sells dedicated
// servers, which it never gives back: the rules of Delete are others then.
//
// CONTRIBUTING.md tells what its flags do to the server.
package contract
