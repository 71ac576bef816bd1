package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// railCollector gives what was last seen of the rails. Values that others count (packets) are counters, though not ours.
type railCollector struct {
	mutex sync.Mutex
	rails map[string]Rail
}

func railDescription(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, append([]string{"rail"}, labels...), nil)
}

var (
	attachments     = railDescription("attachments", "Attachments that are held.")
	flowsWanted     = railDescription("flows_wanted", "OpenFlow rules that the rail's bridge should have.")
	flowsInstalled  = railDescription("flows_installed", "OpenFlow rules of ours that the rail's bridge has.")
	cachedFlows     = railDescription("cached_flows", "Flows cached by the datapath for pods, by where they run.", "where")
	routesWanted    = railDescription("routes_wanted", "Host routes that should be announced.")
	routesAnnounced = railDescription("routes_announced", "Host routes that FRR was given.")
	switchReady     = railDescription("switch_ready", "1: the bridge is there and was programmed.")
	sessionUp       = railDescription("session_established", "1: BGP with the rail's leaf is established.")
	dropped         = railDescription("dropped_packets_total", "Packets dropped by the rail's bridge.", "reason")
)

func (r *railCollector) set(rails map[string]Rail) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.rails = rails
}

// Describe is of prometheus.Collector.
func (r *railCollector) Describe(told chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		attachments, flowsWanted, flowsInstalled, cachedFlows, routesWanted, routesAnnounced, switchReady, sessionUp, dropped,
	} {
		told <- description
	}
}

// Collect is of prometheus.Collector.
func (r *railCollector) Collect(told chan<- prometheus.Metric) {
	r.mutex.Lock()
	rails := r.rails
	r.mutex.Unlock()
	for name, rail := range rails {
		gauge := func(description *prometheus.Desc, value int, labels ...string) {
			told <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value),
				append([]string{name}, labels...)...)
		}
		gauge(attachments, rail.Attachments)
		gauge(flowsWanted, rail.FlowsWanted)
		gauge(routesWanted, rail.RoutesWanted)
		gauge(switchReady, number(rail.SwitchReady))
		if rail.FlowsInstalled != nil {
			gauge(flowsInstalled, *rail.FlowsInstalled)
		}
		if rail.RoutesAnnounced != nil {
			gauge(routesAnnounced, *rail.RoutesAnnounced)
		}
		if rail.SessionEstablished != nil {
			gauge(sessionUp, number(*rail.SessionEstablished))
		}
		for where, count := range rail.CachedFlows {
			gauge(cachedFlows, count, where)
		}
		for reason, packets := range rail.Dropped {
			told <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(packets), name, reason.String())
		}
	}
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
