// Package host tests the agent on machines that boot: a Debian with systemd and
// cloud-init, its user data from the fake cloud, its package from the channel or
// a repository, and a provider that is asked over gRPC. make e2e-host runs it.
package host
