package telemetry

// The metrics, by what they tell of. Dashboards and alerts refer to their names:
// renaming one is a breaking change. docs/observability.md is generated from
// this list.
var (
	MetricBuildInfo = gauge("build_info", "1, labelled with what was built.", "version", "revision", "goversion")
	// MetricProviderInfo names the process as no target of a scrape does: another pod
	// has another address.
	MetricProviderInfo = gauge("provider_info", "1, labelled with the provider's name (`--provider`).", "provider")
	MetricPanics       = counter("panics_total", "Faults in the provider that were caught: in a call (`rpc`), in a step or a pass (`lifecycle`), in a host's request (`channel`). The log has the stack.", LabelPlace)

	// Calls to the cloud's API.
	MetricCloudRequests = histogram("cloud_request_duration_seconds", "From sending a request to the cloud's API until the header of its answer. The operation is method and route; the status is the class of the answer's code, the code where an operator has to act on it, or `timeout`, `canceled`, `error`.",
		[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, LabelMethod, LabelRoute, LabelStatus)
	MetricCloudInFlight = gauge("cloud_requests_in_flight", "Requests to the cloud's API that have no answer yet.")

	// The limit on them.
	MetricBudgetRate   = gauge("cloud_budget_rate", "Calls a second that may be sent now.")
	MetricBudgetFull   = gauge("cloud_budget_rate_configured", "Calls a second that may be sent when the cloud refuses none: `--api-rate`.")
	MetricBudgetTokens = gauge("cloud_budget_tokens", "Calls that may be sent at once now.")
	MetricBudgetWait   = histogram("cloud_budget_wait_seconds", "How long calls waited for their turn: `host`, `teardown`, `work`, `order`, `background`.",
		[]float64{.001, .1, .5, 1, 2.5, 5, 10, 20}, LabelPriority)
	MetricThrottled = counter("cloud_throttled_total", "Calls that the cloud refused for too many (`cloud`), or that were not sent since their turn would have come too late (`budget`).", LabelReason)

	// The gRPC port.
	MetricRPCDuration = histogram("rpc_duration_seconds", "Calls to the gRPC port. `FailedPrecondition` is a fencing token that is not newer than the last, and nothing else.",
		[]float64{.0005, .002, .008, .032, .128, .512, 2.048, 8.192, 32.768}, LabelMethod, LabelCode)
	MetricRPCDenied = counter("rpc_denied_total", "Calls that a client certificate does not allow.")

	// Certificates of the listeners.
	MetricCertificateExpiry  = gauge("certificate_expiry_timestamp_seconds", "When a certificate ends: `grpc`, `channel`, and the CA bundles `grpc-ca`, `channel-ca`, of which the last CA that is still needed counts.", LabelCertificate)
	MetricCertificateReloads = counter("certificate_reloads_total", "Replaced files with `--tls-reload`: taken over (`ok`) or not (`failed`; the ones before them are served on).", LabelCertificate, LabelResult)

	// Machines.
	MetricMachines     = gauge("machines", "Machines by state, how their capacity is sold, and instance type.", LabelState, LabelCapacity, LabelType)
	MetricRunningPrice = gauge("running_price_usd_per_hour", "What the machines cost an hour that have or may have a server: all but SPECULATIVE and cleared FAILED ones.", LabelCapacity, LabelType)

	// Their transitions.
	MetricOperations         = gauge("operations_in_flight", "Operations that were accepted and have no outcome yet.", LabelKind)
	MetricOperationsWaiting  = gauge("operations_waiting", "Those of them that wait for a place, behind `--max-parallel-creates` for example.", LabelKind)
	MetricOldestOperation    = gauge("oldest_operation_age_seconds", "Age of the oldest operation in flight; 0 when there is none.", LabelKind)
	MetricTransitionsStarted = counter("transitions_started_total", "Accepted transitions.", LabelKind)
	MetricTransitionDuration = histogram("transition_duration_seconds", "From acceptance to the end; the outcome is `ok` or the class of failure.",
		[]float64{.25, .75, 2.25, 6.75, 20.25, 60.75, 182.25, 546.75, 1640.25}, LabelKind, LabelOutcome)
	MetricStepDuration = histogram("step_duration_seconds", "From the first try of a step in this process to its end; the outcome is `ok`, `skipped` (given up, and not worth the transition) or the class of failure.",
		[]float64{.05, .25, 1, 5, 15, 60, 300, 1200}, LabelKind, LabelStep, LabelOutcome)
	MetricStepFailures = counter("step_failures_total", "Failed tries of a step.", LabelKind, LabelStep, LabelClass)
	MetricTypeBlocked  = gauge("type_blocked_until_timestamp_seconds", "Until when a [refused type](operations.md#refused-types) is not ordered; gone when it is sold again.", LabelType, LabelClass)
	MetricSlotsLeftOut = gauge("slots_left_out", "Slots of the offerings that cannot be offered, since the zone does not sell the type or the options do not fit it; the log says why.", LabelType)

	// Reconcile and prices.
	MetricReconciles       = counter("reconciles_total", "Reconcile passes: `complete` or `failed`.", LabelResult)
	MetricInventoryUp      = gauge("inventory_up", "1 when the last pass read the cloud's whole inventory, else 0.")
	MetricLastReconcile    = gauge("last_reconcile_timestamp_seconds", "When the last complete pass ended.")
	MetricOwner            = gauge("owner", "1 while this process may change what carries its owner tag; 0 until it has read the cloud, and once another process has taken over.")
	MetricInstances        = gauge("cloud_instances", "Servers with our tag, in its inventory.")
	MetricReported         = gauge("cloud_instances_reported", "Servers that it could only report: `stopped` (IDLE but off), `locked`, `unknown_state`, `no_machine`, `unreadable`, `spare` (a dedicated server that no machine uses).", LabelReason)
	MetricOrphans          = gauge("orphans", "What carries our tag and no machine claims, young or old: `server`, `volume`, `address`.", LabelKind)
	MetricOrphansGone      = counter("orphan_removals_total", "Orphans old enough to remove: `removed`, `failed`, `held` (over the cap, bound to a cluster, or a restored copy), `dry_run`.", LabelKind, LabelResult)
	MetricPriceRefreshes   = counter("price_refreshes_total", "Readings of the cloud's types and prices: `ok`, `recorded` (the cloud did not answer at the start, the record in the program was taken) or `failed` (they stay as they were).", LabelResult)
	MetricLastPriceRefresh = gauge("last_price_refresh_timestamp_seconds", "When types and prices were last read from the cloud; 0 when they never were.")

	// The state file.
	MetricStoreCommit = histogram("store_commit_duration_seconds", "How long it took to make a batch of changes durable.",
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}, LabelResult)
	MetricStoreBatch = histogram("store_commit_changes", "Changes that shared a batch.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512})
	MetricStoreBytes = gauge("store_file_bytes", "Size of the state file; 0 in memory.")

	// The bootstrap channel.
	MetricAgents                = gauge("agents", "Hosts that were heard from in the life of this process, by the version of their agent; `other` from the 33rd on, `unknown` where the agent did not say.", LabelVersion)
	MetricAgentsHeard           = gauge("agents_heard", "Those of them that were heard from within so long: `90s`, `5m`, `15m`, `1h`.", LabelWithin)
	MetricChannelPolls          = counter("channel_polls_total", "Polls of hosts: `command`, `empty`, `taken_over`, `released`, `hangup`, `invalid`.", LabelResult)
	MetricChannelAcks           = counter("channel_acks_total", "Reports of hosts: `settled`, `repeated`, `unconfirmed`, `conflict`, `invalid`.", LabelResult)
	MetricChannelPackages       = counter("channel_packages_total", "Fetches of agent packages: `served`, `not_found`, `invalid`.", LabelResult)
	MetricChannelAuthFailures   = counter("channel_auth_failures_total", "Requests that were refused with 401: `malformed`, `unknown_machine`, `no_host` (of a machine that has none, such as after its Delete), `bad_token`.", LabelReason)
	MetricChannelThrottled      = counter("channel_throttled_total", "Requests that were refused with 429.")
	MetricChannelClones         = counter("channel_clones_total", "Requests of a second host with a machine's token, refused.")
	MetricChannelContested      = gauge("channel_contested_machines", "Machines whose token a second host has used: `capacityctl host list`.")
	MetricChannelPreviousSecret = gauge("channel_previous_secret_machines", "Machines whose host still uses a token of the previous bootstrap secret.")
	MetricChannelParked         = gauge("channel_parked_polls", "Long polls held open: about the number of connected agents.")
	MetricChannelHandover       = histogram("channel_handover_duration_seconds", "From offering a command until a host fetched it.",
		[]float64{.001, .005, .025, .1, .5, 1, 5, 30, 60, 300}, LabelKind)
	MetricChannelDelivery = histogram("channel_delivery_duration_seconds", "From offering a command until its host reported.",
		[]float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600}, LabelKind, LabelOutcome)
)

// Metrics lists all of them. A test holds the list to what a provider registers.
func Metrics() []Metric {
	return []Metric{
		MetricBuildInfo, MetricProviderInfo, MetricPanics,
		MetricMachines, MetricRunningPrice,
		MetricOperations, MetricOperationsWaiting, MetricOldestOperation,
		MetricTransitionsStarted, MetricTransitionDuration, MetricStepDuration, MetricStepFailures,
		MetricTypeBlocked, MetricSlotsLeftOut,
		MetricRPCDuration, MetricRPCDenied,
		MetricCertificateExpiry, MetricCertificateReloads,
		MetricCloudRequests, MetricCloudInFlight,
		MetricBudgetRate, MetricBudgetFull, MetricBudgetTokens, MetricBudgetWait, MetricThrottled,
		MetricReconciles, MetricInventoryUp, MetricOwner, MetricLastReconcile, MetricInstances, MetricReported, MetricOrphans, MetricOrphansGone,
		MetricPriceRefreshes, MetricLastPriceRefresh,
		MetricStoreCommit, MetricStoreBatch, MetricStoreBytes,
		MetricAgents, MetricAgentsHeard,
		MetricChannelPolls, MetricChannelAcks, MetricChannelPackages, MetricChannelAuthFailures,
		MetricChannelThrottled, MetricChannelClones, MetricChannelContested, MetricChannelPreviousSecret, MetricChannelParked, MetricChannelHandover, MetricChannelDelivery,
	}
}

// Names of metric labels.
const (
	LabelCapacity    = "capacity"
	LabelCertificate = "certificate"
	LabelClass       = "class"
	LabelCode        = "code"
	LabelKind        = "kind"
	LabelMethod      = "method"
	LabelOutcome     = "outcome"
	LabelPlace       = "place"
	LabelPriority    = "priority"
	LabelReason      = "reason"
	LabelResult      = "result"
	LabelRoute       = "route"
	LabelState       = "state"
	LabelStatus      = "status"
	LabelStep        = "step"
	LabelType        = "type"
	LabelVersion     = "version"
	LabelWithin      = "within"
)
