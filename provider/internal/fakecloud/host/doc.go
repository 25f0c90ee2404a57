// Package host stands for the guests of the fake cloud: when a server powers
// on, it does with the server's user data what cloud-init would do and runs the
// on-host agent that the user data installs.
//
// NewProcess gives each server a directory tree and runs the real agent binary
// in it. NewInProcess runs the agent's code as goroutines, for thousands of
// servers. In both the agent talks to the provider over real TLS with what it
// found in the user data, and with nothing else: a server whose user data is
// missing or broken boots without an agent, as in reality.
//
// A server's disk (its tree, or its journal) outlives a power-off. It is erased
// when the server is gone.
package host
