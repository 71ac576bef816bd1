package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// railCollector exports the last observed state of the rails. Counters of packets are those of the switch.
type railCollector struct {
	mutex sync.Mutex
	rails map[string]Rail
}

func railDescription(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, append([]string{"rail"}, labels...), nil)
}

var (
	attachments     = railDescription("attachments", "Attachments on this node.")
	flowsWanted     = railDescription("flows_wanted", "OpenFlow rules wanted on the rail's bridge.")
	flowsInstalled  = railDescription("flows_installed", "OpenFlow rules of railwrightd on the rail's bridge.")
	cachedFlows     = railDescription("cached_flows", "Flows cached by the datapath for pods, by where they run.", "where")
	routesWanted    = railDescription("routes_wanted", "Host routes to announce.")
	routesAnnounced = railDescription("routes_announced", "Host routes in FRR.")
	switchReady     = railDescription("switch_ready", "1 if the bridge exists and was programmed.")
	sessionUp       = railDescription("session_established", "1 if the BGP session with the rail's leaf is established.")
	dropped         = railDescription("dropped_packets_total", "Packets dropped by the rail's bridge.", "reason")
)

func (r *railCollector) set(rails map[string]Rail) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.rails = rails
}

// Describe implements prometheus.Collector.
func (r *railCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		attachments, flowsWanted, flowsInstalled, cachedFlows, routesWanted, routesAnnounced, switchReady, sessionUp, dropped,
	} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (r *railCollector) Collect(collected chan<- prometheus.Metric) {
	r.mutex.Lock()
	rails := r.rails
	r.mutex.Unlock()
	for name, rail := range rails {
		gauge := func(description *prometheus.Desc, value int, labels ...string) {
			collected <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value),
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
			collected <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(packets), name, reason.String())
		}
	}
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
