package railnode

import (
	"fmt"
	"net/netip"
)

// Rail is a rail as one node has it. All its names and addresses follow from two numbers.
type Rail struct {
	// Node counts from 1, Number from 0.
	Node, Number int
}

// Name of the rail, the same on all nodes.
func (r Rail) Name() string { return fmt.Sprintf("rail%d", r.Number) }

// Bridge of the rail.
func (r Rail) Bridge() string { return fmt.Sprintf("br-rail%d", r.Number) }

// BridgeMAC is that of the pods' gateway.
func (r Rail) BridgeMAC() string {
	return fmt.Sprintf("02:00:00:00:%02x:%02x", r.Node, r.Number+1)
}

// Uplink is the bridge's port to the leaf.
func (r Rail) Uplink() string { return fmt.Sprintf("p%d", r.Number) }

// LeafPort is the leaf's port to the node.
func (r Rail) LeafPort() string { return fmt.Sprintf("swp%d", r.Node) }

// Table of the kernel that has the rail's host routes.
func (r Rail) Table() int { return 7700 + r.Number }

// LeafAddress is that of the leaf's port, of a /31.
func (r Rail) LeafAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(100*r.Number + 2*r.Node)})
}

// Address of the bridge: what the leaf knows the node by.
func (r Rail) Address() netip.Addr { return r.LeafAddress().Next() }

// LeafAddress6 is that of the leaf's port, of a /127.
func (r Rail) LeafAddress6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%d:%d::", r.Number, r.Node))
}

// Address6 of the bridge.
func (r Rail) Address6() netip.Addr { return r.LeafAddress6().Next() }

// Prefixes that hold the addresses of the rail's pods on all nodes, of IPv4 and of IPv6.
func (r Rail) Prefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", r.Number+1)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/32", r.Number+1)),
	}
}
