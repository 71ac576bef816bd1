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
func (rail Rail) Name() string { return fmt.Sprintf("rail%d", rail.Number) }

// Bridge of the rail.
func (rail Rail) Bridge() string { return fmt.Sprintf("br-rail%d", rail.Number) }

// BridgeMAC is that of the pods' gateway.
func (rail Rail) BridgeMAC() string {
	return fmt.Sprintf("02:00:00:00:%02x:%02x", rail.Node, rail.Number+1)
}

// Uplink is the bridge's port to the leaf.
func (rail Rail) Uplink() string { return fmt.Sprintf("p%d", rail.Number) }

// LeafPort is the leaf's port to the node.
func (rail Rail) LeafPort() string { return fmt.Sprintf("swp%d", rail.Node) }

// Table of the kernel that has the rail's host routes.
func (rail Rail) Table() int { return 7700 + rail.Number }

// LeafAddress is that of the leaf's port, of a /31.
func (rail Rail) LeafAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(100*rail.Number + 2*rail.Node)})
}

// Address of the bridge: what the leaf knows the node by.
func (rail Rail) Address() netip.Addr { return rail.LeafAddress().Next() }

// LeafAddress6 is that of the leaf's port, of a /127.
func (rail Rail) LeafAddress6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%d:%d::", rail.Number, rail.Node))
}

// Address6 of the bridge.
func (rail Rail) Address6() netip.Addr { return rail.LeafAddress6().Next() }

// Prefixes that hold the addresses of the rail's pods on all nodes, of IPv4 and of IPv6.
func (rail Rail) Prefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", rail.Number+1)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/32", rail.Number+1)),
	}
}
