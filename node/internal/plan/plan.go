// Package plan says what flows and routes a node needs. Pure: no I/O, no clock; the same input gives the same output.
package plan

import (
	"net/netip"

	"railwright/node/internal/attachment"
)

// Rail is one NIC of the node with its bridge and its leaf, as configured.
type Rail struct {
	Name   string
	Bridge string
	// Uplink is the PF's interface, a port of the bridge.
	Uplink string
	// Table of the kernel's routing tables that this rail's host routes go into.
	Table int
	// KeepTTL leaves the TTL (hop limit) as it is at this hop; otherwise it is decremented as a router does.
	KeepTTL bool
	// Marking is what becomes of the DSCP of what pods send.
	Marking Marking
	// Routers are the fabric's: path MTU discovery's errors by them reach pods, and nothing else that they send.
	Routers []netip.Prefix
}

// Marking of what pods send by DSCP, which NICs and leaves take the class of traffic from. Zero: it is trusted.
type Marking struct {
	Policy MarkingPolicy
	// DSCP that every packet gets, where it is rewritten.
	DSCP uint8
	// Allowed DSCPs, each once; packets of others are refused.
	Allowed []uint8
}

// MarkingPolicy is what is done with a DSCP.
type MarkingPolicy string

// The policies. ECN is left alone by each.
const (
	TrustMarking   MarkingPolicy = ""
	RewriteMarking MarkingPolicy = "rewrite"
	RefuseMarking  MarkingPolicy = "refuse"
)

// Facts are what a rail's bridge is at the moment; a rail without them gets no flow.
type Facts struct {
	UplinkPort uint32
	// BridgeMAC is that of the bridge's own interface, which the leaf knows, and which pods know as their gateway.
	BridgeMAC attachment.MAC
	// LeafMAC is the rail leaf's, as the host's neighbour table has it; zero: not known, nothing can leave the node.
	LeafMAC attachment.MAC
	// LeafProblem says why LeafMAC is not known, and the next step.
	LeafProblem string
	// AnswersND: the datapath takes flows that answer a neighbour solicitation.
	AnswersND bool
	// Userspace: the datapath is that of ovs-vswitchd itself, which makes no checksum that a veth left out.
	Userspace bool
	// HostAddresses of the bridge's own interface, whose traffic with the leaf is let through.
	HostAddresses []netip.Addr
	// Ports by interface name: OpenFlow's number of every port that is there and has one.
	Ports map[string]uint32
}

// Tenants is who may talk to whom, as far as this node needs it.
type Tenants struct {
	// Numbers of this node for tenants, 1 and up; a tenant without one is let nowhere.
	Numbers map[string]uint32
	// Members are addresses (/32, /128) or whole prefixes of tenants; two of them never overlap with different tenants.
	Members []Member
	// Pairs of tenants that are open to each other beside each to itself; both directions.
	Pairs [][2]string
}

// Member of a tenant.
type Member struct {
	Prefix netip.Prefix
	Tenant string
}
