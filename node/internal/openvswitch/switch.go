// Package openvswitch reads and programs the rails' bridges: the database through libovsdb, flows by OpenFlow bundles.
package openvswitch

import (
	"context"
	"net/netip"

	"railwright/node/internal/plan"
)

// Switch is what the reconciler needs of Open vSwitch. Every call is bounded by its context.
type Switch interface {
	// Facts of a rail's bridge as they are now. An error says what is missing and the next step.
	Facts(ctx context.Context, rail plan.Rail) (plan.Facts, error)
	// BridgeOf finds the bridge that has the interface as a port, among those of rails. Bounded wait: an earlier plugin
	// of the chain may have added it a moment ago, and its OpenFlow number comes after that.
	BridgeOf(ctx context.Context, hostInterface string) (bridge string, err error)
	// Change adds and deletes flows of a bridge in one atomic bundle, makes the meters that those added need, and deletes
	// those that the deleted ones alone had.
	Change(ctx context.Context, bridge string, add, remove []plan.Flow) error
	// Replace makes the bridge's flows exactly these, in one atomic bundle, and says how many differed. Packets and
	// counters of those that are right already see nothing of it.
	Replace(ctx context.Context, bridge string, flows []plan.Flow) (repaired int, err error)
	// Differences between the flows wanted and those there, one line each; empty: none.
	Differences(ctx context.Context, bridge string, flows []plan.Flow) ([]string, error)
	// Counters of the bridge's flows by cookie.
	Counters(ctx context.Context, bridge string) (map[uint64]Count, error)
	// Unreached gives those of an attachment's addresses that no packet came for by the uplink yet, and has the leaf send one.
	Unreached(ctx context.Context, rail plan.Rail, number uint16, addresses []netip.Addr) ([]netip.Addr, error)
	// Datapath lists what the datapaths have cached, and where each flow runs.
	Datapath(ctx context.Context) ([]CachedFlow, error)
	// PodPorts are the ports of the rails' bridges that were made for pods.
	PodPorts(ctx context.Context) ([]PodPort, error)
	// RemovePort takes a port from its bridge, if it is there and was made for a pod: the one in this network namespace
	// where the port says which.
	RemovePort(ctx context.Context, hostInterface, netns string) error
	// Events tells what has changed until ctx ends. Slow readers lose none: events of a bridge are merged.
	Events(ctx context.Context) <-chan Event
}

// PodPort is a port that an earlier plugin of the chain made for a pod.
type PodPort struct {
	HostInterface string
	// Netns is the path of the pod's network namespace, as that plugin was given it; empty: it did not say.
	Netns string
}

// Count of all flows with one cookie.
type Count struct {
	Packets, Bytes uint64
	// Flows that have the cookie.
	Flows uint64
}

// Event is a reason to look again.
type Event struct {
	// Bridge is empty where all may be concerned.
	Bridge string
	// FlowsLost: ovs-vswitchd came anew, or somebody else deleted or added flows.
	FlowsLost bool
	// Why, for the log.
	Why string
}

// CachedFlow is a flow of the datapath (a megaflow).
type CachedFlow struct {
	Match, Actions string
	// InPort is the name of the interface it came in by.
	InPort  string
	Packets uint64
	Bytes   uint64
	// UsedSeconds since the last packet; negative: never.
	UsedSeconds float64
	// Offloaded to hardware; else Why not, where it can be known.
	Offloaded bool
	// Layer that runs it: "tc", "ovs" (kernel datapath), "netdev" (userspace datapath), "dpdk".
	Layer string
	Why   string
}
