// Package plan computes the flows and routes that a node needs. It is pure: no I/O, no clock; equal input gives equal
// output.
package plan

import (
	"net/netip"

	"railwright/node/internal/attachment"
)

// Rail is a NIC of the node with its bridge and its leaf, as configured.
type Rail struct {
	Name   string
	Bridge string
	// Uplink is the PF's interface, a port of the bridge.
	Uplink string
	// Second is the uplink to the rail's second leaf, or "" without one. It is Uplink if both are behind one bond.
	Second string
	// Table is the kernel routing table of this rail's host routes.
	Table int
	// KeepTTL leaves the TTL (hop limit) unchanged. Otherwise this hop decrements it, as a router does.
	KeepTTL bool
	// Marking is the treatment of the DSCP of packets that pods send.
	Marking Marking
	// Routers are prefixes of the fabric's routers. Pods receive their path MTU discovery errors, and nothing else from
	// them.
	Routers []netip.Prefix
}

// Marking is the treatment of the DSCP of packets that pods send. NICs and leaves derive the traffic class from it. The
// zero value trusts the pods.
type Marking struct {
	Policy MarkingPolicy
	// DSCP is set in every packet under RewriteMarking.
	DSCP uint8
	// Allowed lists the DSCPs accepted under RefuseMarking, without duplicates.
	Allowed []uint8
	// CNP lists the DSCPs of RoCE's congestion notifications. They keep it under every policy, without duplicates.
	CNP []uint8
}

// MarkingPolicy selects what happens to a DSCP.
type MarkingPolicy string

// The marking policies. None of them changes ECN.
const (
	TrustMarking   MarkingPolicy = ""
	RewriteMarking MarkingPolicy = "rewrite"
	RefuseMarking  MarkingPolicy = "refuse"
)

// Facts is the current state of a rail's bridge. A rail without facts gets no flows.
type Facts struct {
	UplinkPort uint32
	// BridgeMAC is the MAC address of the bridge's own interface. The leaf knows it, and pods know it as their gateway.
	BridgeMAC attachment.MAC
	// LeafMAC is the leaf's MAC address in the host's neighbour table. While it is zero, nothing leaves the node.
	LeafMAC attachment.MAC
	// LeafProblem explains why LeafMAC is unknown, with the next step.
	LeafProblem string
	// LeafDown reports that the uplink has no carrier, or that only the second leaf has a BGP session.
	LeafDown bool
	// Second is the way to the second leaf. Its port is 0 without one.
	Second Way
	// AnswersND reports whether the datapath takes flows that answer neighbour solicitations.
	AnswersND bool
	// Userspace reports whether the datapath runs in ovs-vswitchd, which does not complete the checksums that a veth
	// leaves to hardware.
	Userspace bool
	// HostAddresses are the addresses of the bridge's own interface. Their traffic with the leaf is admitted.
	HostAddresses []netip.Addr
	// Ports maps interface names to OpenFlow port numbers. Ports without a number are absent.
	Ports map[string]uint32
}

// Way is a way out of the bridge: an uplink with the leaf behind it.
type Way struct {
	Port uint32
	Leaf attachment.MAC
	Down bool
}

// uplinks returns the ports of the uplinks, each once.
func (f Facts) uplinks() []uint32 {
	if f.Second.Port == 0 || f.Second.Port == f.UplinkPort {
		return []uint32{f.UplinkPort}
	}
	return []uint32{f.UplinkPort, f.Second.Port}
}

// ways returns the ways to the leaves whose MAC address is known: those that are up or, if none is, all of them. To send
// to a leaf that is down is harmless, and its flows need no change when it is back.
func (f Facts) ways() []Way {
	var known, up []Way
	for _, way := range []Way{{f.UplinkPort, f.LeafMAC, f.LeafDown}, f.Second} {
		if way.Port == 0 || way.Leaf == (attachment.MAC{}) {
			continue
		}
		known = append(known, way)
		if !way.Down {
			up = append(up, way)
		}
	}
	if len(up) > 0 {
		return up
	}
	return known
}

// Tenants describes which tenants may communicate, as far as this node needs to know.
type Tenants struct {
	// Numbers are this node's numbers for tenants, from 1. A tenant without a number reaches nothing.
	Numbers map[string]uint32
	// Members are addresses (/32, /128) or prefixes of tenants. Those of different tenants never overlap.
	Members []Member
	// Pairs are peered tenants; each pair is open in both directions. Every tenant is open to itself.
	Pairs [][2]string
}

// Member is a prefix that belongs to a tenant.
type Member struct {
	Prefix netip.Prefix
	Tenant string
}
