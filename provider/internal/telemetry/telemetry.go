// Package telemetry holds what the parts of a provider share so that an
// operator sees one picture: the names of log attributes and metrics, the
// registry, the logger, the probes, and a transport that measures cloud calls.
//
// Nothing here sees a header, a body or a query of a cloud call, and label
// values come from small fixed sets, so that neither logs nor metrics can carry
// a credential or grow with the fleet.
package telemetry

// Keys of log attributes. A fact has one key in every package, so that a log
// can be searched by it.
const (
	KeyAttempt   = "attempt"
	KeyBoot      = "agent_boot"
	KeyCert      = "certificate"
	KeyCloud     = "cloud"
	KeyCluster   = "cluster_id"
	KeyCommand   = "command_id" // the operation id, as the host sees it
	KeyCount     = "count"
	KeyDuration  = "duration"
	KeyError     = "error"
	KeyFile      = "file"
	KeyHost      = "host"     // the beginning of the digest of a host's id
	KeyInstance  = "instance" // the cloud's reference of a server
	KeyKind      = "kind"
	KeyListen    = "listen"
	KeyMachine   = "machine_id"
	KeyMethod    = "method"
	KeyOperation = "operation_id"
	KeyOutcome   = "outcome"
	KeyPath      = "path"
	KeyReason    = "reason"
	KeyRemote    = "remote"
	KeyRoute     = "route"
	KeyShard     = "shard_id"
	KeyStack     = "stack"
	KeyState     = "state"
	KeyStatus    = "status"
	KeyStep      = "step"
	KeyVersion   = "agent_version"
	KeyZone      = "zone"
)
