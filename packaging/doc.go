// Package packaging tests what is built for other machines: the agent's Debian
// package, its APT repository, the licences and the versions. What builds them
// are the scripts beside it; see docs/release.md.
package packaging
