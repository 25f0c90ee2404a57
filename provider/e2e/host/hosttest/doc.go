// Package hosttest is the stage of tests with machines that really boot: a fake
// cloud whose servers are Debian guests in containers, built providers as
// processes, and packages and repositories of the agent.
package hosttest
