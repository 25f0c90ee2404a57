// Package structure holds tests of the repository's shape: which package may
// import which, and that every package says what it is for. It has no code
// outside its tests.
package structure
