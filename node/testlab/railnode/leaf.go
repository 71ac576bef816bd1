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
	// FirstLeafASN is the AS number of rail 0's leaf. The leaf of rail N has FirstLeafASN + N.
	FirstLeafASN = 65100
	// maxPrefixes is the number of prefixes of each family that a leaf accepts from a node. The daemon's limit,
	// ownBound, is lower.
	maxPrefixes = 256
	ownBound    = 240
)

// Release is an FRR release with the backend by which the daemon announces routes.
type Release struct {
	Version testlab.FRRVersion
	Backend frrconfig.Backend
}

// The supported combinations: FRR 10 imports routes from the kernel's tables, FRR 8.4 gets them over bgpd's socket.
var (
	NewFRR = Release{testlab.FRR10, frrconfig.KernelTable}
	OldFRR = Release{testlab.FRR8, frrconfig.Vty}
)

func (r Release) String() string {
	return fmt.Sprintf("FRR %s %s", r.Version, r.Backend)
}

// Leaf is the router of a rail that the nodes' uplinks connect to.
type Leaf struct {
	*testlab.Namespace
	Rail int
	FRR  *testlab.FRR
}

// NewLeaf creates a leaf. Its FRR does not run yet.
func NewLeaf(t testing.TB, rail int) *Leaf {
	t.Helper()
	made := &Leaf{Namespace: testlab.NewNamespace(t, fmt.Sprintf("leaf%d", rail)), Rail: rail}
	Route(t, made.Namespace)
	return made
}

// Route enables IP forwarding in a namespace.
func Route(t testing.TB, namespace *testlab.Namespace) {
	t.Helper()
	namespace.TakeAddressesAtOnce(t)
	namespace.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
}

// Text returns the leaf's frr.conf with the given nodes as neighbors. The text is generated like the examples in
// deploy/frr.
func (l *Leaf) Text(nodes ...*Node) string {
	var ports []string
	for _, node := range nodes {
		ports = append(ports, node.Rails[l.Rail].Address().String())
	}
	return frrconfig.Leaf{
		ASN: FirstLeafASN + uint32(l.Rail), RouterID: netip.AddrFrom4([4]byte{10, 255, 1, byte(l.Rail + 1)}),
		Rail: Rail{Number: l.Rail}.Name(), Prefixes: Rail{Number: l.Rail}.Prefixes(), MaxPrefixes: maxPrefixes, Ports: ports,
	}.Text()
}

// GiveAddresses sets the addresses of the port to a node. A link that went down has lost its IPv6 address.
func (l *Leaf) GiveAddresses(t testing.TB, node *Node) {
	t.Helper()
	rail := node.Rails[l.Rail]
	l.IP(t, "addr", "replace", rail.LeafAddress().String()+"/31", "dev", rail.LeafPort())
	l.IP(t, "addr", "replace", rail.LeafAddress6().String()+"/127", "dev", rail.LeafPort(), "nodad")
}

// Routes returns the pod addresses to which the leaf's kernel has a BGP host route.
func (l *Leaf) Routes() map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for _, family := range []string{"-4", "-6"} {
		routes, _ := l.Try("ip", family, "route", "show", "proto", "bgp")
		for line := range strings.Lines(routes) {
			// Lines of further next hops do not begin with an address.
			if fields := strings.Fields(line); len(fields) > 0 {
				if address, err := netip.ParseAddr(fields[0]); err == nil {
					found[address] = true
				}
			}
		}
	}
	return found
}

// Has reports whether the leaf has routes to all of the addresses.
func (l *Leaf) Has(addresses ...string) bool { return l.Count(addresses...) == len(addresses) }

// Count returns the number of given addresses that the leaf has a route to.
func (l *Leaf) Count(addresses ...string) int {
	routes, count := l.Routes(), 0
	for _, address := range addresses {
		if routes[netip.MustParseAddr(address)] {
			count++
		}
	}
	return count
}
