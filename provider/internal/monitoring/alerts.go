package monitoring

// alerts are the rules, the gravest first. Sums keep the labels of the target
// (without, never by), so that an alert names the provider that it is about.
func alerts() []alert {
	return []alert{
		{
			name: "BigFleetProviderDown", severity: critical, wait: "10m",
			// By its name, since a new pod is another instance; by the instance where an
			// older release has no name yet. absent() alone sees only the last one go.
			expr: `(
  group by (job, namespace, provider) (last_over_time(bigfleet_provider_info[1d]))
  unless
  group by (job, namespace, provider) (bigfleet_provider_info)
)
or
(
  group by (job, instance) (last_over_time(bigfleet_build_info[3h]))
  unless on (job, instance)
  bigfleet_build_info
  unless on (job)
  last_over_time(bigfleet_provider_info[1d])
)
or
(
  absent(bigfleet_build_info)
  unless on ()
  last_over_time(bigfleet_provider_info[1d])
)`,
			when:    "a provider that was scraped in the last day has not been for 10 minutes, or none is.",
			summary: "{{ with $labels.provider }}Provider {{ . }}{{ else }}{{ with $labels.instance }}The provider at {{ . }}{{ else }}No provider{{ end }}{{ end }} is {{ if or $labels.provider $labels.instance }}not {{ end }}scraped",
		},
		{
			name: "BigFleetNoCreateSucceeds", severity: critical, wait: "10m",
			expr: `(
  sum without (kind) (increase(bigfleet_transitions_started_total{kind="Create"}[45m])) > 0
)
unless
(
  sum without (kind, outcome) (increase(bigfleet_transition_duration_seconds_count{kind="Create",outcome="ok"}[45m])) > 0
)
and
(
  sum without (kind, outcome) (increase(bigfleet_transition_duration_seconds_count{kind="Create",outcome!="ok"}[45m])) > 0
  or
  max without (kind) (bigfleet_oldest_operation_age_seconds{kind="Create"}) > 1200
)`,
			when:    "machines were asked for in the last 45 minutes, none was made, and some failed or take longer than 20 minutes.",
			summary: "Machines are asked for and none is made",
		},
		{
			name: "BigFleetInventoryUnreadable", severity: critical, wait: "10m",
			expr:    `bigfleet_inventory_up == 0`,
			when:    "no reconcile pass could read the cloud's inventory for 10 minutes. Machines that are lost, and servers that nobody claims, are not found meanwhile.",
			summary: "The cloud's inventory cannot be read",
		},
		{
			name: "BigFleetNotOwner", severity: critical, wait: "10m",
			expr:    `bigfleet_owner == 0`,
			when:    "for 10 minutes a provider has ordered, removed and tagged nothing, since another process owns its servers or the cloud cannot be read.",
			summary: "The provider does not own its servers",
		},
		{
			name: "BigFleetAPIDenied", severity: critical, wait: "5m",
			expr:    `sum without (method, route) (increase(bigfleet_cloud_request_duration_seconds_count{status=~"401|403"}[10m])) > 0`,
			when:    "the cloud has refused the credentials, or what they may do, for 5 minutes.",
			summary: "The cloud answers {{ $labels.status }}",
		},
		{
			name: "BigFleetStoreFails", severity: critical,
			expr:    `sum without (result) (increase(bigfleet_store_commit_duration_seconds_count{result="failed"}[10m])) > 0`,
			when:    "changes could not be written to the state file in the last 10 minutes. The calls were refused.",
			summary: "The state file cannot be written",
		},
		{
			name: "BigFleetCertificateEnds", severity: critical,
			expr:    `bigfleet_certificate_expiry_timestamp_seconds - time() < 3 * 86400`,
			when:    "a certificate ends within 3 days, or has ended.",
			summary: "The certificate {{ $labels.certificate }} ends in {{ $value | humanizeDuration }}",
		},
		{
			name: "BigFleetAgentsLost", severity: critical, wait: "10m",
			expr: `(
  sum without (state, capacity, type) (bigfleet_machines{state=~"IDLE|CONFIGURING|CONFIGURED|DRAINING"})
  - sum without (within) (bigfleet_agents_heard{within="5m"})
)
/ sum without (state, capacity, type) (bigfleet_machines{state=~"IDLE|CONFIGURING|CONFIGURED|DRAINING"}) > 0.2`,
			when:    "more than a fifth of the hosts were not heard from within 5 minutes, for 10 minutes.",
			summary: "{{ $value | humanizePercentage }} of the hosts are silent",
		},
		{
			name: "BigFleetTransitionsFail", severity: warning, wait: "10m",
			expr: `sum without (outcome) (increase(bigfleet_transition_duration_seconds_count{outcome!="ok"}[30m]))
/ sum without (outcome) (increase(bigfleet_transition_duration_seconds_count[30m])) > 0.25
and sum without (outcome) (increase(bigfleet_transition_duration_seconds_count{outcome!="ok"}[30m])) > 2`,
			when:    "more than a quarter of the transitions of a kind, and more than 2, failed in 30 minutes.",
			summary: "{{ $value | humanizePercentage }} of {{ $labels.kind }}s fail",
		},
		{
			name: "BigFleetOperationTooOld", severity: warning, wait: "5m",
			expr:    `bigfleet_oldest_operation_age_seconds > 5400`,
			when:    "an operation has had no outcome for 90 minutes. Its deadline should have ended it, unless it was set longer.",
			summary: "A {{ $labels.kind }} has been under way for {{ $value | humanizeDuration }}",
		},
		{
			name: "BigFleetFencingRejections", severity: warning, wait: "5m",
			expr:    `sum without (method, code) (increase(bigfleet_rpc_duration_seconds_count{code="FailedPrecondition"}[15m])) > 5`,
			when:    "more than 5 calls in 15 minutes had a fencing token that is not newer than the last: two shards act for the same machines, or one repeats itself.",
			summary: "Calls with an old fencing token are refused",
		},
		{
			name: "BigFleetReconcileStale", severity: warning, wait: "5m",
			expr:    `time() - (bigfleet_last_reconcile_timestamp_seconds > 0) > 1800`,
			when:    "no reconcile pass was completed for 30 minutes.",
			summary: "The last complete reconcile pass was {{ $value | humanizeDuration }} ago",
		},
		{
			name: "BigFleetOrphans", severity: warning, wait: "1h",
			expr:    `bigfleet_orphans > 0`,
			when:    "something with this provider's tag has been claimed by no machine for an hour. It costs money.",
			summary: "{{ $value }} of kind {{ $labels.kind }} belong to no machine",
		},
		{
			name: "BigFleetOrphansHeld", severity: warning,
			expr:    `sum without (result) (increase(bigfleet_orphan_removals_total{result=~"held|failed"}[1h])) > 0`,
			when:    "orphans were old enough to remove and stayed: over the cap, bound to a cluster, or the cloud refused.",
			summary: "Orphans of kind {{ $labels.kind }} are kept",
		},
		{
			name: "BigFleetAPIErrors", severity: warning, wait: "10m",
			expr: `sum without (method, route) (rate(bigfleet_cloud_request_duration_seconds_count{status=~"5xx|error|timeout"}[10m]))
/ ignoring (status) group_left
sum without (method, route, status) (rate(bigfleet_cloud_request_duration_seconds_count[10m])) > 0.1`,
			when:    "more than a tenth of the calls to the cloud have failed in one way for 10 minutes.",
			summary: "{{ $value | humanizePercentage }} of the calls to the cloud end as {{ $labels.status }}",
		},
		{
			name: "BigFleetAPIBudgetLow", severity: warning, wait: "15m",
			expr: `bigfleet_cloud_budget_rate / bigfleet_cloud_budget_rate_configured < 0.5
or bigfleet_cloud_budget_tokens < 1
or sum without (reason) (increase(bigfleet_cloud_throttled_total[10m])) > 0`,
			when:    "for 15 minutes calls to the cloud were refused for too many, or none could be sent at once.",
			summary: "The budget of API calls is used up",
		},
		{
			name: "BigFleetCertificateEndsSoon", severity: warning,
			expr:    `bigfleet_certificate_expiry_timestamp_seconds - time() < 14 * 86400`,
			when:    "a certificate ends within 14 days.",
			summary: "The certificate {{ $labels.certificate }} ends in {{ $value | humanizeDuration }}",
		},
		{
			name: "BigFleetAgentsSilent", severity: warning, wait: "15m",
			expr: `(
  sum without (state, capacity, type) (bigfleet_machines{state=~"IDLE|CONFIGURING|CONFIGURED|DRAINING"})
  - sum without (within) (bigfleet_agents_heard{within="15m"})
)
/ sum without (state, capacity, type) (bigfleet_machines{state=~"IDLE|CONFIGURING|CONFIGURED|DRAINING"}) > 0.01`,
			when:    "more than a hundredth of the hosts were not heard from within 15 minutes, for 15 minutes.",
			summary: "{{ $value | humanizePercentage }} of the hosts are silent",
		},
		{
			name: "BigFleetStoreSlow", severity: warning, wait: "10m",
			expr:    `histogram_quantile(0.99, sum without (result) (rate(bigfleet_store_commit_duration_seconds_bucket[10m]))) > 0.5`,
			when:    "one in a hundred writes to the state file has taken more than half a second for 10 minutes.",
			summary: "Writes to the state file take {{ $value | humanizeDuration }}",
		},
		{
			name: "BigFleetPricesStale", severity: warning, wait: "1h",
			expr:    `time() - bigfleet_last_price_refresh_timestamp_seconds > 2 * 86400`,
			when:    "types and prices were not read from the cloud for 2 days.",
			summary: "Prices are older than 2 days",
		},
		{
			name: "BigFleetSlotsLeftOut", severity: warning, wait: "30m",
			expr:    `bigfleet_slots_left_out > 0`,
			when:    "the offerings ask for slots that cannot be offered.",
			summary: "{{ $value }} slots of type {{ $labels.type }} are not offered",
		},
		{
			name: "BigFleetTokenShared", severity: warning,
			expr:    `increase(bigfleet_channel_clones_total[15m]) > 0`,
			when:    "a second host used a machine's token in the last 15 minutes.",
			summary: "Two hosts use one machine's token",
		},
		{
			name: "BigFleetCallsDenied", severity: warning,
			expr:    `increase(bigfleet_rpc_denied_total[15m]) > 0`,
			when:    "a client certificate did not allow a call in the last 15 minutes.",
			summary: "Calls are refused for the client's identity",
		},
		{
			name: "BigFleetPanics", severity: warning,
			expr:    `increase(bigfleet_panics_total[15m]) > 0`,
			when:    "a fault in the provider was caught in the last 15 minutes.",
			summary: "A fault in the provider, in {{ $labels.place }}",
		},
	}
}
