// Package crash holds tests only: they kill the built provider at every named
// step of its work and at random, damage what it keeps, and compare what it
// says afterwards with what it had acknowledged and with the cloud's inventory.
//
// The fake cloud and its hosts live in the test's own process, so they outlive
// every provider, as a real cloud does.
package crash
