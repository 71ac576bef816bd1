// Package metrics is what railwrightd tells Prometheus, and its two doors for health. A gauge that could not be looked
// at is absent, never zero.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"railwright/node/internal/plan"
)

// Metrics of one daemon, in a registry of their own.
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
	early      prometheus.Counter
}

// Rail is what was seen of one.
type Rail struct {
	Attachments, FlowsWanted, RoutesWanted int
	// SwitchReady: the last look at the bridge succeeded.
	SwitchReady bool
	// The ones below are nil or absent where they could not be looked at.
	RoutesAnnounced    *int
	FlowsInstalled     *int
	SessionEstablished *bool
	// CachedFlows of the datapath that belong to this rail's ports, by where they run: "hardware" or "software".
	CachedFlows map[string]int
	// Dropped packets by reason.
	Dropped map[plan.Reason]uint64
}

// New makes them, with what Go and the kernel say of the process.
func New() *Metrics {
	metrics := &Metrics{registry: prometheus.NewRegistry(), rails: &railCollector{}}
	metrics.makeHistograms()
	metrics.requests = counters("requests_total", "Requests of the plugins by their gRPC code.", "request", "code")
	metrics.repairs = counters("repairs_total",
		"Flows and routes that were not as they should be and were put right, by cause.", "rail", "cause")
	metrics.garbage = counters("collected_total", "Attachments whose pod was gone, deleted without a DEL.", "cause")
	metrics.tombstones = counters("tombstones_total",
		"DELs that plugins left while the daemon was away, by what became of them.", "outcome")
	metrics.damaged = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "damaged_state_files", Help: "Files of the state folder that could not be trusted.",
	})
	metrics.unheeded = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "unheeded",
		Help: "Tenants, peerings, records and addresses that are not heeded; `railwrightd status` names them. Others are served.",
	})
	metrics.early = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "unconfirmed_total",
		Help: "ADDs that succeeded though nodes had not confirmed the addresses, which they let in only later.",
	})
	metrics.registry.MustRegister(metrics.steps, metrics.requests, metrics.passes, metrics.repairs, metrics.garbage,
		metrics.tombstones, metrics.damaged, metrics.unheeded, metrics.early, metrics.rails, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return metrics
}

const namespace = "railwright"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (m *Metrics) makeHistograms() {
	m.steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "step_seconds", Help: "Time of each step of a request; step \"all\" is the whole.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .15, .2, .3, .5, 1, 2, 5, 10},
	}, []string{"request", "step"})
	m.passes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "pass_seconds", Help: "Time of one pass over a rail by outcome.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"rail", "outcome"})
}

// Step of a request took this long.
func (m *Metrics) Step(request, step string, took time.Duration) {
	m.steps.WithLabelValues(request, step).Observe(took.Seconds())
}

// Request was answered with the code.
func (m *Metrics) Request(request, code string) {
	m.requests.WithLabelValues(request, code).Inc()
}

// Pass over a rail took this long.
func (m *Metrics) Pass(rail string, succeeded bool, took time.Duration) {
	outcome := "ok"
	if !succeeded {
		outcome = "failed"
	}
	m.passes.WithLabelValues(rail, outcome).Observe(took.Seconds())
}

// Repaired flows or routes of a rail.
func (m *Metrics) Repaired(rail, cause string, count int) {
	m.repairs.WithLabelValues(rail, cause).Add(float64(count))
}

// Collected an attachment whose pod is gone.
func (m *Metrics) Collected(cause string) { m.garbage.WithLabelValues(cause).Inc() }

// Tombstone was replayed, ignored or could not be read.
func (m *Metrics) Tombstone(outcome string) { m.tombstones.WithLabelValues(outcome).Inc() }

// Damaged files found.
func (m *Metrics) Damaged(count int) { m.damaged.Set(float64(count)) }

// Unheeded tenants, peerings, records and addresses there are.
func (m *Metrics) Unheeded(count int) { m.unheeded.Set(float64(count)) }

// Unconfirmed is an ADD that succeeded though nodes had not confirmed its addresses.
func (m *Metrics) Unconfirmed() { m.early.Inc() }

// SetRails replaces what was seen of all rails.
func (m *Metrics) SetRails(rails map[string]Rail) { m.rails.set(rails) }
