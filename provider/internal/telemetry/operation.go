package telemetry

import "time"

// Operation is what a trace says of a transition.
type Operation struct {
	ID, Kind, Machine string
	Cluster           string // "" where it has none
	Instance          string // the cloud's reference of its server; "" where none is known yet
	Started           time.Time
}
