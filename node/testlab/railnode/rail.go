package railnode

import (
	"fmt"
	"net/netip"
)

// Rail is a rail of a node. Its names and addresses derive from two numbers.
type Rail struct {
	// Node counts from 1, Number from 0.
	Node, Number int
}

// Name returns the rail's name, which is the same on all nodes.
func (r Rail) Name() string { return fmt.Sprintf("rail%d", r.Number) }

// Bridge returns the name of the rail's bridge.
func (r Rail) Bridge() string { return fmt.Sprintf("br-rail%d", r.Number) }

// BridgeMAC returns the MAC address of the bridge, which is the pods' gateway.
func (r Rail) BridgeMAC() string {
	return fmt.Sprintf("02:00:00:00:%02x:%02x", r.Node, r.Number+1)
}

// Uplink returns the name of the bridge's port to the leaf.
func (r Rail) Uplink() string { return fmt.Sprintf("p%d", r.Number) }

// LeafPort returns the name of the leaf's port to the node.
func (r Rail) LeafPort() string { return fmt.Sprintf("swp%d", r.Node) }

// Table returns the number of the kernel table that holds the rail's host routes.
func (r Rail) Table() int { return 7700 + r.Number }

// LeafAddress returns the IPv4 address of the leaf's port, the lower address of a /31.
func (r Rail) LeafAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(100*r.Number + 2*r.Node)})
}

// Address returns the bridge's IPv4 address, which the leaf uses as the node's BGP neighbor address.
func (r Rail) Address() netip.Addr { return r.LeafAddress().Next() }

// LeafAddress6 returns the IPv6 address of the leaf's port, the lower address of a /127.
func (r Rail) LeafAddress6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%d:%d::", r.Number, r.Node))
}

// Address6 returns the bridge's IPv6 address.
func (r Rail) Address6() netip.Addr { return r.LeafAddress6().Next() }

// Prefixes returns the IPv4 and the IPv6 prefix of the rail's pods on all nodes.
func (r Rail) Prefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", r.Number+1)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/32", r.Number+1)),
	}
}
