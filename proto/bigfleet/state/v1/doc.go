// Package statev1 is the schema of the provider's state file in Go, generated
// from record.proto: what the store keeps of a machine.
package statev1
