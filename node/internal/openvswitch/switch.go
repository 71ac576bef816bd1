// Package openvswitch reads and programs the rails' bridges: the database through libovsdb, flows by OpenFlow bundles.
package openvswitch

import (
	"context"
	"net/netip"

	"railwright/node/internal/plan"
)

// Switch is the reconciler's interface to Open vSwitch. Every call is bounded by its context.
type Switch interface {
	// Facts returns the state of a rail's bridge. An error names what is missing and the next step.
	Facts(ctx context.Context, rail plan.Rail) (plan.Facts, error)
	// BridgeOf returns the rail's bridge that has the interface as a port. It waits for a bounded time, because an
	// earlier plugin of the chain may just have added the port, and the port gets its OpenFlow number later.
	BridgeOf(ctx context.Context, hostInterface string) (bridge string, err error)
	// CheckRate returns ErrRate if the bridge's datapath would limit traffic to another rate in bit/s.
	CheckRate(ctx context.Context, bridge string, rate uint64) error
	// Change adds and deletes flows of a bridge in an atomic bundle. It creates the meters of the added flows and
	// deletes those that only the deleted flows used.
	Change(ctx context.Context, bridge string, add, remove []plan.Flow) error
	// Replace makes flows the flows of the bridge in an atomic bundle and returns how many differed. Packets and
	// counters of unchanged flows are not affected.
	Replace(ctx context.Context, bridge string, flows []plan.Flow) (repaired int, err error)
	// Settle waits until the datapaths forward by the flows that are programmed now: for so many rounds of revalidation to
	// end. A round that is in progress may have read the flows before they changed.
	Settle(ctx context.Context, rounds int) error
	// Differences returns the differences between the wanted and the actual flows, a line each.
	Differences(ctx context.Context, bridge string, flows []plan.Flow) ([]string, error)
	// Counters returns the counters of the bridge's flows by cookie.
	Counters(ctx context.Context, bridge string) (map[uint64]Count, error)
	// Unreached returns those of an attachment's addresses for which no packet has come from the uplink yet, and makes
	// the leaf send one.
	Unreached(ctx context.Context, rail plan.Rail, number uint16, addresses []netip.Addr) ([]netip.Addr, error)
	// Datapath lists the flows that the datapaths have cached, and where each runs.
	Datapath(ctx context.Context) ([]CachedFlow, error)
	// PodPorts returns the ports of the rails' bridges that were created for pods.
	PodPorts(ctx context.Context) ([]PodPort, error)
	// RemovePort removes a port from its bridge if it was created for a pod and, as far as the port names its network
	// namespace, for this one.
	RemovePort(ctx context.Context, hostInterface, netns string) error
	// Events reports changes until ctx ends. Slow readers lose none: events of a bridge are merged.
	Events(ctx context.Context) <-chan Event
}

// PodPort is a port that an earlier plugin of the chain created for a pod.
type PodPort struct {
	HostInterface string
	// Netns is the path of the pod's network namespace as the plugin received it, or "" if the port does not name it.
	Netns string
}

// Count sums the counters of all flows with the same cookie.
type Count struct {
	Packets, Bytes uint64
	// Flows is the number of flows with the cookie.
	Flows uint64
}

// Event is a reason to compare the desired and the actual state again.
type Event struct {
	// Bridge is the bridge concerned, or "" for all.
	Bridge string
	// FlowsLost reports that ovs-vswitchd restarted, or that another program deleted or added flows.
	FlowsLost bool
	// Reason is for the log.
	Reason string
}

// CachedFlow is a flow of the datapath (a megaflow).
type CachedFlow struct {
	Match, Actions string
	// InPort is the name of the ingress interface.
	InPort  string
	Packets uint64
	Bytes   uint64
	// UsedSeconds is the time since the last packet. It is negative if there was none.
	UsedSeconds float64
	// Offloaded reports whether the flow runs in hardware. If not, Reason explains why, as far as known.
	Offloaded bool
	// Layer is the layer that runs the flow: "tc", "ovs" (kernel datapath), "netdev" (userspace datapath) or "dpdk".
	Layer  string
	Reason string
}
