// Package bigfleetv1alpha1 is the capacity provider protocol in Go, generated
// from provider.proto: the service that a BigFleet shard calls and the provider
// serves.
package bigfleetv1alpha1
