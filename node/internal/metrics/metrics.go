// Package metrics serves railwrightd's Prometheus metrics and its two health endpoints. A gauge that could not be read
// is absent, never zero.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"railwright/node/internal/plan"
)

// Metrics are the metrics of a daemon, in their own registry.
type Metrics struct {
	registry *prometheus.Registry
	rails    *railCollector

	steps      *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	passes     *prometheus.HistogramVec
	repairs    *prometheus.CounterVec
	garbage    *prometheus.CounterVec
	tombstones *prometheus.CounterVec
	damaged    prometheus.Gauge
	unheeded   prometheus.Gauge
	held       prometheus.Gauge
	up         *prometheus.GaugeVec
}

// Rail is the observed state of a rail.
type Rail struct {
	Attachments, FlowsWanted, RoutesWanted int
	// SwitchReady reports whether the last pass over the bridge succeeded.
	SwitchReady bool
	// The fields below are nil or absent if they could not be read.
	RoutesAnnounced    *int
	FlowsInstalled     *int
	SessionEstablished *bool
	// CachedFlows counts the datapath's flows of this rail's ports by where they run: "hardware" or "software".
	CachedFlows map[string]int
	// Dropped counts dropped packets by reason.
	Dropped map[plan.Reason]uint64
}

// New returns the metrics, including those of Go and of the process.
func New() *Metrics {
	metrics := &Metrics{registry: prometheus.NewRegistry(), rails: &railCollector{}}
	metrics.makeHistograms()
	metrics.requests = counters("requests_total", "Requests of the plugins by gRPC code.", "request", "code")
	metrics.repairs = counters("repairs_total",
		"Flows and routes that were wrong and were repaired, by cause.", "rail", "cause")
	metrics.garbage = counters("collected_total", "Attachments deleted without a DEL because their pod was gone.", "cause")
	metrics.tombstones = counters("tombstones_total",
		"DELs that plugins left while the daemon was down, by outcome.", "outcome")
	metrics.damaged = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "damaged_state_files", Help: "Damaged files in the state folder.",
	})
	metrics.unheeded = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "unheeded",
		Help: "Tenants, peerings, records and addresses that are ignored; `railwrightd status` names them.",
	})
	metrics.held = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "held_addresses",
		Help: "Addresses of deleted pods of this node that others cannot use yet.",
	})
	metrics.up = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rail_up", Help: "1 unless bridge, uplink or session of the rail is down, as the Node's condition says.",
	}, []string{"rail"})
	metrics.registry.MustRegister(metrics.up, metrics.steps, metrics.requests, metrics.passes, metrics.repairs, metrics.garbage,
		metrics.tombstones, metrics.damaged, metrics.unheeded, metrics.held, metrics.rails, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return metrics
}

const namespace = "railwright"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (m *Metrics) makeHistograms() {
	m.steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "step_seconds", Help: "Time of each step of a request; step \"all\" is the whole request.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .15, .2, .3, .5, 1, 2, 5, 10},
	}, []string{"request", "step"})
	m.passes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "pass_seconds", Help: "Time of a pass over a rail by outcome.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"rail", "outcome"})
}

// Step records the time of a request's step.
func (m *Metrics) Step(request, step string, took time.Duration) {
	m.steps.WithLabelValues(request, step).Observe(took.Seconds())
}

// Request counts a reply by its code.
func (m *Metrics) Request(request, code string) {
	m.requests.WithLabelValues(request, code).Inc()
}

// Pass records the time of a pass over a rail.
func (m *Metrics) Pass(rail string, succeeded bool, took time.Duration) {
	outcome := "ok"
	if !succeeded {
		outcome = "failed"
	}
	m.passes.WithLabelValues(rail, outcome).Observe(took.Seconds())
}

// Repaired counts repaired flows or routes of a rail.
func (m *Metrics) Repaired(rail, cause string, count int) {
	m.repairs.WithLabelValues(rail, cause).Add(float64(count))
}

// Collected counts an attachment that was deleted because its pod is gone.
func (m *Metrics) Collected(cause string) { m.garbage.WithLabelValues(cause).Inc() }

// Tombstone counts a tombstone by its outcome.
func (m *Metrics) Tombstone(outcome string) { m.tombstones.WithLabelValues(outcome).Inc() }

// SetDamagedFiles sets the number of damaged files.
func (m *Metrics) SetDamagedFiles(count int) { m.damaged.Set(float64(count)) }

// SetIgnored sets the number of ignored tenants, peerings, records and addresses.
func (m *Metrics) SetIgnored(count int) { m.unheeded.Set(float64(count)) }

// SetHeld sets the number of addresses that are held without a pod.
func (m *Metrics) SetHeld(count int) { m.held.Set(float64(count)) }

// SetRailUp sets whether a rail is up.
func (m *Metrics) SetRailUp(rail string, up bool) {
	m.up.WithLabelValues(rail).Set(float64(number(up)))
}

// SetRails replaces the observed state of all rails.
func (m *Metrics) SetRails(rails map[string]Rail) { m.rails.set(rails) }
