// Package deploy holds tests only: they render and judge what is in the deploy
// folder with the tools that operators use on it, and with the provider itself.
package deploy
