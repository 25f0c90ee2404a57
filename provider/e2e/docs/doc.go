// Package docs holds tests of the pages that people read: README.md and docs/.
// Their commands are run as they stand, one page after the other in one shell, in
// a network of their own; what they show as output is compared; their links and
// the files they name are looked up.
//
// A block of commands (```sh) is marked on the line above as
//
//	<!-- tested -->                      it is run
//	<!-- tested with a provider -->      the same, and a provider on the fake backend is there
//	<!-- tested with a fleet -->         the same, with a machine that is CONFIGURED and one that is IDLE
//	<!-- tested with a fake cloud -->    the same, and bin/fakecloud and its variables are there
//	<!-- tested in the background: W --> it is started, and the next waits for the words W in its output
//	<!-- tested: NAME -->                not commands, but the content of the file NAME
//	<!-- tested by .ci/run -->           .ci/run has each of its lines
//	<!-- output -->                      not commands, but what the block before printed, or some of it
//
// or begins with a comment "# Needs …" that says what it takes that a test has not.
package docs
