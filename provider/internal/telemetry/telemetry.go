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
	KeyCloud     = "cloud"
	KeyCluster   = "cluster_id"
	KeyCommand   = "command_id" // the operation id, as the host sees it
	KeyCount     = "count"
	KeyDuration  = "duration"
	KeyError     = "error"
	KeyFile      = "file"
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

// Names of metrics. Dashboards and alerts refer to them: renaming one is a
// breaking change.
const (
	MetricBuildInfo = "bigfleet_provider_build_info"

	// Calls to the cloud's API.
	MetricCloudRequests = "bigfleet_cloud_request_duration_seconds" // histogram: cloud, method, route, status
	MetricCloudInFlight = "bigfleet_cloud_requests_in_flight"       // gauge: cloud

	// The limit on them.
	MetricBudgetRate   = "bigfleet_cloud_budget_rate"         // gauge: cloud; calls a second
	MetricBudgetTokens = "bigfleet_cloud_budget_tokens"       //nolint:gosec // gauge: cloud; these tokens are no credentials
	MetricBudgetWait   = "bigfleet_cloud_budget_wait_seconds" // histogram: cloud, priority
	MetricThrottled    = "bigfleet_cloud_throttled_total"     // counter: cloud, reason

	// The gRPC port.
	MetricRPCDuration = "bigfleet_rpc_duration_seconds" // histogram: method, code
	MetricRPCDenied   = "bigfleet_rpc_denied_total"     // counter

	// Machines and their transitions.
	MetricTransitionsStarted = "bigfleet_transitions_started_total"            // counter: kind
	MetricTransitionDuration = "bigfleet_transition_duration_seconds"          // histogram: kind, outcome
	MetricStepFailures       = "bigfleet_step_failures_total"                  // counter: kind, step, class
	MetricTypeBlocked        = "bigfleet_type_blocked_until_timestamp_seconds" // gauge: type, class
	MetricSlotsLeftOut       = "bigfleet_slots_left_out"                       // gauge: type

	// Reconcile.
	MetricReconciles    = "bigfleet_reconciles_total"                 // counter: result
	MetricLastReconcile = "bigfleet_last_reconcile_timestamp_seconds" // gauge
	MetricInstances     = "bigfleet_cloud_instances"                  // gauge
	MetricReported      = "bigfleet_cloud_instances_reported"         // gauge: reason
	MetricOrphans       = "bigfleet_orphans"                          // gauge: kind
	MetricOrphansGone   = "bigfleet_orphan_removals_total"            // counter: kind, result

	// The bootstrap channel.
	MetricChannelPolls        = "bigfleet_channel_polls_total"               // counter: result
	MetricChannelAcks         = "bigfleet_channel_acks_total"                // counter: result
	MetricChannelPackages     = "bigfleet_channel_packages_total"            // counter: result
	MetricChannelAuthFailures = "bigfleet_channel_auth_failures_total"       // counter: reason
	MetricChannelThrottled    = "bigfleet_channel_throttled_total"           // counter
	MetricChannelClones       = "bigfleet_channel_clones_total"              // counter
	MetricChannelPanics       = "bigfleet_channel_panics_total"              // counter
	MetricChannelParked       = "bigfleet_channel_parked_polls"              // gauge
	MetricChannelHandover     = "bigfleet_channel_handover_duration_seconds" // histogram: kind; offered until a host fetched it
	MetricChannelDelivery     = "bigfleet_channel_delivery_duration_seconds" // histogram: kind, outcome; offered until the host reported
)

// Names of metric labels.
const (
	LabelClass    = "class"
	LabelCloud    = "cloud"
	LabelCode     = "code"
	LabelKind     = "kind"
	LabelMethod   = "method"
	LabelOutcome  = "outcome"
	LabelPriority = "priority"
	LabelReason   = "reason"
	LabelResult   = "result"
	LabelRoute    = "route"
	LabelStatus   = "status"
	LabelStep     = "step"
	LabelType     = "type"
)
