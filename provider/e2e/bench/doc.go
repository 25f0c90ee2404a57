// Package bench measures the built provider from outside, over gRPC, beside
// what the machine can do at best: one sync of 4 KiB on the same disk, one
// empty call on the same connection, one copy of the same bytes.
//
// Its benchmarks run with go test -bench; make bench runs them all and writes
// the table in docs/performance.md.
package bench
