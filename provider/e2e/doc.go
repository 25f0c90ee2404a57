// Package e2e holds tests only: they build the binaries and play BigFleet
// against them over real sockets, with faults and restarts.
package e2e
