package metrics

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"
)

// Held are the metrics of `railwrightd sweep`.
type Held struct {
	served    Metrics
	addresses *prometheus.GaugeVec
}

// NewHeld returns the metrics of `railwrightd sweep`.
func NewHeld() *Held {
	held := &Held{served: Metrics{registry: prometheus.NewRegistry()}, addresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "gone_node_addresses",
		Help: "Addresses that a machine holds whose Node is gone, until its RailNode is declared off.",
	}, []string{"railnode"})}
	held.served.registry.MustRegister(held.addresses)
	return held
}

// Set replaces the number of addresses of each RailNode. nil means that they are unknown.
func (h *Held) Set(addresses map[string]int) {
	h.addresses.Reset()
	for name, count := range addresses {
		h.addresses.WithLabelValues(name).Set(float64(count))
	}
}

// Serve serves /metrics until ctx ends.
func (h *Held) Serve(ctx context.Context, listener net.Listener) error {
	return h.served.Serve(ctx, listener, nil)
}
