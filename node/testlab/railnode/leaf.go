package railnode

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

const (
	firstNodeASN = 65000
	// FirstLeafASN is that of rail 0's leaf; the next rail's has the next.
	FirstLeafASN = 65100
	// mostPrefixes that a leaf takes of a node, of each family; the daemon's own bound is below.
	mostPrefixes = 256
	ownBound     = 240
)

// Release of FRR, and the way that the daemon tells it routes.
type Release struct {
	Version testlab.FRRVersion
	Backend frrconfig.Backend
}

// The two that are supported: FRR 10 takes routes from the kernel's tables, FRR 8.4 is told by bgpd's socket.
var (
	NewFRR = Release{testlab.FRR10, frrconfig.KernelTable}
	OldFRR = Release{testlab.FRR8, frrconfig.Vty}
)

func (r Release) String() string {
	return fmt.Sprintf("FRR %s %s", r.Version, r.Backend)
}

// Leaf of a rail: a router that nodes have their uplinks to.
type Leaf struct {
	*testlab.Namespace
	Rail int
	FRR  *testlab.FRR
}

// NewLeaf whose FRR does not run yet.
func NewLeaf(t testing.TB, rail int) *Leaf {
	t.Helper()
	made := &Leaf{Namespace: testlab.NewNamespace(t, fmt.Sprintf("leaf%d", rail)), Rail: rail}
	Route(t, made.Namespace)
	return made
}

// Route makes a router of a namespace.
func Route(t testing.TB, namespace *testlab.Namespace) {
	t.Helper()
	namespace.TakeAddressesAtOnce(t)
	namespace.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
}

// Text of the leaf's frr.conf: the shipped example.
func (l *Leaf) Text(nodes ...*Node) string {
	var ports []string
	for _, node := range nodes {
		ports = append(ports, node.Rails[l.Rail].Address().String())
	}
	return frrconfig.Leaf{
		ASN: FirstLeafASN + uint32(l.Rail), RouterID: netip.AddrFrom4([4]byte{10, 255, 1, byte(l.Rail + 1)}),
		Rail: Rail{Number: l.Rail}.Name(), Prefixes: Rail{Number: l.Rail}.Prefixes(), MaxPrefixes: mostPrefixes, Ports: ports,
	}.Text()
}

// GiveAddresses to the port to a node; a link that was down has lost the one of IPv6.
func (l *Leaf) GiveAddresses(t testing.TB, node *Node) {
	t.Helper()
	rail := node.Rails[l.Rail]
	l.IP(t, "addr", "replace", rail.LeafAddress().String()+"/31", "dev", rail.LeafPort())
	l.IP(t, "addr", "replace", rail.LeafAddress6().String()+"/127", "dev", rail.LeafPort(), "nodad")
}

// Routes that the leaf's kernel has of BGP to single pods.
func (l *Leaf) Routes() map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for _, family := range []string{"-4", "-6"} {
		routes, _ := l.Try("ip", family, "route", "show", "proto", "bgp")
		for line := range strings.Lines(routes) {
			// The first word of a line; that of a further way to the same is no address.
			if fields := strings.Fields(line); len(fields) > 0 {
				if address, err := netip.ParseAddr(fields[0]); err == nil {
					found[address] = true
				}
			}
		}
	}
	return found
}

// Has routes to all of the addresses.
func (l *Leaf) Has(addresses ...string) bool { return l.Count(addresses...) == len(addresses) }

// Count the addresses that the leaf has a route to.
func (l *Leaf) Count(addresses ...string) int {
	routes, count := l.Routes(), 0
	for _, address := range addresses {
		if routes[netip.MustParseAddr(address)] {
			count++
		}
	}
	return count
}
