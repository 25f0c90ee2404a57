package monitoring

import "fmt"

// The kinds of chart.
const (
	stat       = "stat"
	timeseries = "timeseries"
)

// section is a row of the dashboard with the charts below it.
type section struct {
	title  string
	charts []chart
}

// chart is one panel, in our own words.
type chart struct {
	kind, title   string
	about         string
	unit          string // Grafana's name of it
	width, height int    // on the grid
	stacked       bool
	bad           []step // from where on a value is worse
	series        []series
}

type step struct {
	from  float64
	color string
}

// series is a line of a chart; expr has the short prefix, and of stands for the
// providers that were chosen.
type series struct{ expr, legend string }

const of = `instance=~"$instance"`

func number(title, unit, expr, about string, bad ...step) chart {
	return chart{kind: stat, title: title, unit: unit, width: 3, height: 4, about: about, bad: bad, series: []series{{expr: expr}}}
}

func lines(title, unit, about string, all ...series) chart {
	return chart{kind: timeseries, title: title, unit: unit, width: 12, height: 8, about: about, series: all}
}

func stack(title, unit, about string, all ...series) chart {
	c := lines(title, unit, about, all...)
	c.stacked = true
	return c
}

// quantile is the expression of a histogram's quantile by labels.
func quantile(q float64, metric, labels, by string) string {
	if labels != "" {
		labels = "," + labels
	}
	return fmt.Sprintf(`histogram_quantile(%g, sum by (le%s) (rate(%s_bucket{%s%s}[$__rate_interval])))`, q, by, metric, of, labels)
}

// sections are the dashboard, from the top.
func sections() []section {
	return []section{glance(), machines(), transitions(), cloudCalls(), calls(), reconcile(), channel(), process()}
}

func glance() section {
	inState := func(states string) string {
		return `sum(bigfleet_machines{` + of + `,state=~"` + states + `"}) or vector(0)`
	}
	return section{title: "At a glance", charts: []chart{
		number("Configured", "short", inState("CONFIGURED"), "Machines that are nodes of a cluster."),
		number("Idle", "short", inState("IDLE"), "Machines with a server and without a cluster."),
		number("In transition", "short", inState("CREATING|CONFIGURING|DRAINING|DELETING"), ""),
		number("Failed", "short", inState("FAILED"), "Each says why: capacityctl list.", step{1, "orange"}),
		number("Cost an hour", "currencyUSD", `sum(bigfleet_running_price_usd_per_hour{`+of+`})`, "Of all machines that have, or may have, a server."),
		number("Oldest operation", "s", `max(bigfleet_oldest_operation_age_seconds{`+of+`})`, "", step{1800, "orange"}, step{5400, "red"}),
		number("Inventory unreadable", "short", `count(bigfleet_inventory_up{`+of+`} == 0) or vector(0)`, "Providers whose last reconcile pass could not read the cloud.", step{1, "red"}),
		number("Orphans", "short", `sum(bigfleet_orphans{`+of+`})`, "Servers, volumes and addresses that no machine claims.", step{1, "orange"}),
	}}
}

func machines() section {
	return section{title: "Machines", charts: []chart{
		stack("By state", "short", "Without free slots.", series{`sum by (state) (bigfleet_machines{` + of + `,state!="SPECULATIVE"})`, "{{state}}"}),
		stack("By type", "short", "Those that have, or may have, a server.", series{`sum by (type, capacity) (bigfleet_machines{` + of + `,state!~"SPECULATIVE|FAILED"})`, "{{type}} {{capacity}}"}),
		stack("Cost an hour by type", "currencyUSD", "", series{`sum by (type, capacity) (bigfleet_running_price_usd_per_hour{` + of + `})`, "{{type}} {{capacity}}"}),
		stack("Free slots by type", "short", "What may still be ordered.", series{`sum by (type) (bigfleet_machines{` + of + `,state="SPECULATIVE"})`, "{{type}}"}),
	}}
}

func transitions() section {
	return section{title: "Transitions", charts: []chart{
		stack("In flight", "short", "Accepted, without an outcome yet.", series{`sum by (kind) (bigfleet_operations_in_flight{` + of + `})`, "{{kind}}"}),
		lines("Waiting for a place, and the oldest", "short", "",
			series{`sum by (kind) (bigfleet_operations_waiting{` + of + `})`, "{{kind}} waiting"},
			series{`max by (kind) (bigfleet_oldest_operation_age_seconds{` + of + `})`, "{{kind}} oldest, seconds"}),
		lines("Accepted and ended an hour", "short", "",
			series{`sum by (kind) (rate(bigfleet_transitions_started_total{` + of + `}[$__rate_interval])) * 3600`, "{{kind}} accepted"},
			series{`sum by (kind, outcome) (rate(bigfleet_transition_duration_seconds_count{` + of + `}[$__rate_interval])) * 3600`, "{{kind}} {{outcome}}"}),
		lines("Duration, median and 95 %", "s", "",
			series{quantile(.5, "bigfleet_transition_duration_seconds", `outcome="ok"`, ", kind"), "{{kind}} median"},
			series{quantile(.95, "bigfleet_transition_duration_seconds", `outcome="ok"`, ", kind"), "{{kind}} 95 %"}),
		lines("Duration of steps, 95 %", "s", "Where the time goes.", series{quantile(.95, "bigfleet_step_duration_seconds", "", ", kind, step"), "{{kind}} {{step}}"}),
		lines("Failed tries of steps an hour", "short", "A failed try is repeated; not each one is a failed transition.", series{`sum by (kind, step, class) (rate(bigfleet_step_failures_total{` + of + `}[$__rate_interval])) * 3600`, "{{kind}} {{step}} {{class}}"}),
	}}
}

func cloudCalls() section {
	return section{title: "The cloud's API", charts: []chart{
		stack("Calls a second", "reqps", "", series{`sum by (status) (rate(bigfleet_cloud_request_duration_seconds_count{` + of + `}[$__rate_interval]))`, "{{status}}"}),
		lines("Duration of calls, 95 %", "s", "", series{quantile(.95, "bigfleet_cloud_request_duration_seconds", "", ", method, route"), "{{method}} {{route}}"}),
		lines("Budget", "short", "Calls a second that may be sent: now, and when the cloud refuses none; and at once.",
			series{`sum(bigfleet_cloud_budget_rate{` + of + `})`, "rate now"},
			series{`sum(bigfleet_cloud_budget_rate_configured{` + of + `})`, "rate configured"},
			series{`sum(bigfleet_cloud_budget_tokens{` + of + `})`, "at once"}),
		lines("Waits for a turn, 95 %, and calls without one", "s", "",
			series{quantile(.95, "bigfleet_cloud_budget_wait_seconds", "", ", priority"), "{{priority}}"},
			series{`sum by (reason) (increase(bigfleet_cloud_throttled_total{` + of + `}[$__rate_interval]))`, "throttled by {{reason}}, calls"}),
	}}
}

func calls() section {
	return section{title: "Calls of the shards", charts: []chart{
		stack("Calls a second", "reqps", "", series{`sum by (method) (rate(bigfleet_rpc_duration_seconds_count{` + of + `}[$__rate_interval]))`, "{{method}}"}),
		lines("Refused calls a second", "reqps", "FailedPrecondition: an old fencing token.",
			series{`sum by (method, code) (rate(bigfleet_rpc_duration_seconds_count{` + of + `,code!="OK"}[$__rate_interval]))`, "{{method}} {{code}}"},
			series{`sum(rate(bigfleet_rpc_denied_total{` + of + `}[$__rate_interval]))`, "denied by certificate"}),
		lines("Duration of calls, 99 %", "s", "", series{quantile(.99, "bigfleet_rpc_duration_seconds", "", ", method"), "{{method}}"}),
		lines("State file: writes, 99 %", "s", "A call is answered when its change is durable.",
			series{quantile(.99, "bigfleet_store_commit_duration_seconds", "", ", result"), "{{result}}"}),
		lines("State file: changes a write, median and 99 %", "short", "",
			series{quantile(.5, "bigfleet_store_commit_changes", "", ""), "median"},
			series{quantile(.99, "bigfleet_store_commit_changes", "", ""), "99 %"}),
		lines("State file: size", "bytes", "", series{`sum by (instance) (bigfleet_store_file_bytes{` + of + `})`, "{{instance}}"}),
	}}
}

func reconcile() section {
	return section{title: "Reconcile, prices, certificates", charts: []chart{
		lines("Age of the last complete pass", "s", "", series{`time() - max by (instance) (bigfleet_last_reconcile_timestamp_seconds{` + of + `} > 0)`, "{{instance}}"}),
		lines("Passes an hour", "short", "", series{`sum by (result) (rate(bigfleet_reconciles_total{` + of + `}[$__rate_interval])) * 3600`, "{{result}}"}),
		stack("Orphans, and what came of them", "short", "",
			series{`sum by (kind) (bigfleet_orphans{` + of + `})`, "{{kind}}"},
			series{`sum by (kind, result) (increase(bigfleet_orphan_removals_total{` + of + `}[$__rate_interval]))`, "{{kind}} {{result}}"}),
		lines("Servers with our tag", "short", "",
			series{`sum(bigfleet_cloud_instances{` + of + `})`, "all"},
			series{`sum by (reason) (bigfleet_cloud_instances_reported{` + of + `})`, "{{reason}}"}),
		lines("Types that the cloud refuses, for how long yet", "s", "", series{`max by (type, class) (bigfleet_type_blocked_until_timestamp_seconds{` + of + `}) - time()`, "{{type}} {{class}}"}),
		lines("Slots that cannot be offered", "short", "The log says why.", series{`sum by (type) (bigfleet_slots_left_out{` + of + `})`, "{{type}}"}),
		lines("Age of prices", "s", "",
			series{`time() - max by (instance) (bigfleet_last_price_refresh_timestamp_seconds{` + of + `} > 0)`, "{{instance}}"},
			series{`sum by (result) (increase(bigfleet_price_refreshes_total{` + of + `}[1d]))`, "{{result}}, times a day"}),
		lines("Certificates end in", "s", "", series{`min by (instance, certificate) (bigfleet_certificate_expiry_timestamp_seconds{` + of + `}) - time()`, "{{instance}} {{certificate}}"}),
	}}
}

func channel() section {
	return section{title: "Hosts", charts: []chart{
		stack("Agents by version", "short", "", series{`sum by (version) (bigfleet_agents{` + of + `})`, "{{version}}"}),
		lines("Hosts, and heard from within", "short", "",
			series{`sum(bigfleet_machines{` + of + `,state=~"IDLE|CONFIGURING|CONFIGURED|DRAINING"})`, "machines with a host"},
			series{`sum by (within) (bigfleet_agents_heard{` + of + `})`, "heard within {{within}}"},
			series{`sum(bigfleet_channel_parked_polls{` + of + `})`, "parked polls"}),
		lines("Hand-over of a command, 95 %", "s", "From the offer until the host fetched it.", series{quantile(.95, "bigfleet_channel_handover_duration_seconds", "", ", kind"), "{{kind}}"}),
		lines("Commands carried out, median and 95 %", "s", "From the offer until the host reported.",
			series{quantile(.5, "bigfleet_channel_delivery_duration_seconds", "", ", kind, outcome"), "{{kind}} {{outcome}} median"},
			series{quantile(.95, "bigfleet_channel_delivery_duration_seconds", "", ", kind, outcome"), "{{kind}} {{outcome}} 95 %"}),
		lines("Requests a second", "reqps", "",
			series{`sum by (result) (rate(bigfleet_channel_polls_total{` + of + `}[$__rate_interval]))`, "poll {{result}}"},
			series{`sum by (result) (rate(bigfleet_channel_acks_total{` + of + `}[$__rate_interval]))`, "ack {{result}}"},
			series{`sum by (result) (rate(bigfleet_channel_packages_total{` + of + `}[$__rate_interval]))`, "package {{result}}"}),
		lines("Refused requests a second", "reqps", "",
			series{`sum by (reason) (rate(bigfleet_channel_auth_failures_total{` + of + `}[$__rate_interval]))`, "{{reason}}"},
			series{`sum(rate(bigfleet_channel_throttled_total{` + of + `}[$__rate_interval]))`, "throttled"},
			series{`sum(rate(bigfleet_channel_clones_total{` + of + `}[$__rate_interval]))`, "second host of a machine"}),
	}}
}

func process() section {
	return section{title: "The process", charts: []chart{
		lines("CPU", "short", "Seconds a second.", series{`sum by (instance) (rate(process_cpu_seconds_total{` + of + `}[$__rate_interval])) and on (instance) bigfleet_build_info`, "{{instance}}"}),
		lines("Memory", "bytes", "", series{`process_resident_memory_bytes{` + of + `} and on (instance) bigfleet_build_info`, "{{instance}}"}),
		lines("Goroutines", "short", "", series{`go_goroutines{` + of + `} and on (instance) bigfleet_build_info`, "{{instance}}"}),
		lines("Caught faults, and versions", "short", "",
			series{`sum by (place) (increase(bigfleet_panics_total{` + of + `}[$__rate_interval]))`, "fault in {{place}}"},
			series{`count by (version) (bigfleet_build_info{` + of + `})`, "{{version}}"}),
	}}
}
