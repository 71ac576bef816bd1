// Package frrconfig makes the FRR configuration that an operator gives to a node and to its rail leaves, each line with
// its reason. The daemon never writes it: it is printed for the operator to read, change and keep.
//
// Two filters stand between the daemon and the leaf, so that none of its faults can announce what is not a pod's: one
// where routes enter BGP (a rail's table holds the rail's own pods only) and one where they leave it (a rail's leaf is told
// of the rail's own pods only).
package frrconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Backend is the way routes get into FRR.
type Backend string

// KernelTable needs FRR 10; Vty is for older releases, whose kernel tables are IPv4 only.
const (
	KernelTable Backend = "kernel-table"
	Vty         Backend = "vty"
)

// Node is what the configuration of a node is made from. The values are the operator's own and have been checked:
// interface names, addresses and numbers, nothing else.
type Node struct {
	Backend  Backend
	ASN      uint32
	RouterID netip.Addr
	// BFD needs bfdd on the node and on the leaf.
	BFD   bool
	Rails []Rail
}

// Rail of a node.
type Rail struct {
	Name string
	// Interface that the leaf is reached by: the rail's bridge.
	Interface string
	// Peer is the leaf's address; zero: unnumbered.
	Peer netip.Addr
	// Table of the kernel that the daemon writes the rail's host routes to.
	Table int
	// Prefixes that all pods of the rail have their addresses in, on every node.
	Prefixes []netip.Prefix
}

// RouteMap and prefix lists of a rail have this name. Routes that the vty backend announces refer to it, so that they are
// known from the operator's own.
func RouteMap(rail string) string { return "railwright-" + rail }

// denyAll is the route map that lets nothing through.
const denyAll = "railwright-nothing"

// neighbor by which FRR knows the leaf.
func (r Rail) neighbor() string {
	if r.Peer.IsValid() {
		return r.Peer.String()
	}
	return r.Interface
}

// Text is the node's frr.conf.
func (n Node) Text() string {
	page := &document{}
	n.head(page)
	if n.Backend == Vty {
		page.say("bgpd opens no session until 5 s after a start, its default for route maps. A leaf keeps the pods' routes until then,")
		page.say("and drops those that bgpd does not have when the session is up: railwrightd has that time to give them again.")
	} else {
		page.first()
	}
	for _, rail := range n.Rails {
		page.railFilter(rail)
	}
	for _, rail := range n.Rails {
		if !rail.Peer.IsValid() {
			page.advertise(rail.Interface)
		}
	}
	page.nothing("The leaf's routes are not needed: packets of pods go to the leaf by OpenFlow, not by the host's routes.")
	page.router(n.ASN, n.RouterID)
	page.add(" bgp graceful-restart",
		"When bgpd dies, the leaf keeps the pods' routes until it is back (120 s at most): pods' packets do not pass FRR.")
	page.add(" bgp graceful-restart preserve-fw-state",
		"Tells the leaf so. Without it the leaf drops the routes when bgpd comes back, before it has heard them again.")
	// FRR ends a session that is known by the interface alone together with the interface, whatever is said here.
	if slices.ContainsFunc(n.Rails, func(rail Rail) bool { return rail.Peer.IsValid() }) {
		page.add(" no bgp fast-external-failover",
			"A start of ovs-vswitchd takes the bridge's interface down for a moment (userspace datapath): the session outlives it. One that begins anew may end again at once where both sides open it at the same moment, and a leaf deletes what it kept of a session that ends twice.")
	}
	if n.Backend == Vty {
		page.add(" no bgp network import-check",
			"A pod's address is in no routing table of the host; without this line bgpd would not announce it.")
	}
	page.group("LEAVES", n.BFD)
	for _, rail := range n.Rails {
		page.neighbor(rail.neighbor(), !rail.Peer.IsValid(), "LEAVES")
	}
	page.families("LEAVES", n.policy)
	return page.text()
}

func (n Node) policy(page *document) {
	for _, rail := range n.Rails {
		if n.Backend == KernelTable {
			page.add(fmt.Sprintf("  redistribute table-direct %d route-map %s", rail.Table, RouteMap(rail.Name)),
				"First filter: of the rail's table, only the rail's pods enter BGP.")
		}
	}
	page.add("  neighbor LEAVES route-map "+denyAll+" in", "")
	for _, rail := range n.Rails {
		page.add("  neighbor "+rail.neighbor()+" route-map "+RouteMap(rail.Name)+" out",
			"Second filter: only the rail's own pods go to the rail's leaf.")
	}
}

func (n Node) head(page *document) {
	page.say("FRR of a node, for railwrightd's %s backend.", n.Backend)
	if n.Backend == KernelTable {
		page.say("Needs FRR 10: FRR 8 cannot take IPv6 from a table of the kernel. The daemon writes blackhole routes, one of each")
		page.say("pod's address, to a table for each rail that no rule looks up; FRR redistributes the tables.")
	} else {
		page.say("For FRR 8.4 and later. The daemon adds and removes `network` lines in bgpd's memory through its vty socket,")
		page.say("each with a rail's route map; it never saves them. Without these route maps nothing is announced.")
	}
	page.say("/etc/frr/daemons: bgpd=yes%s", map[bool]string{true: ", bfdd=yes"}[n.BFD])
}

// Leaf is what the leaf's side is made from: an example for a leaf that runs FRR, and the rules for one that does not.
type Leaf struct {
	ASN      uint32
	RouterID netip.Addr
	BFD      bool
	Rail     string
	Prefixes []netip.Prefix
	// MaxPrefixes of each address family that a node may announce; railwrightd's max_prefixes is to be below it.
	MaxPrefixes int
	// Ports to nodes: interface names (unnumbered), or the nodes' addresses.
	Ports []string
}

// Text is the leaf's frr.conf, as far as nodes are concerned.
func (l Leaf) Text() string {
	page := &document{}
	page.say("FRR of a rail leaf, as far as its nodes are concerned. Its sessions with spines come beside it.")
	page.first()
	page.railFilter(Rail{Name: l.Rail, Prefixes: l.Prefixes})
	for _, port := range l.Ports {
		if _, err := netip.ParseAddr(port); err != nil {
			page.advertise(port)
		}
	}
	page.nothing("Nodes need no routes: their flows send all that leaves to this leaf.")
	page.router(l.ASN, l.RouterID)
	page.group("NODES", l.BFD)
	page.add(" neighbor NODES passive",
		"Nodes open the session. Where both sides do in the same moment, FRR may end the one that it has just established, and a leaf deletes what it kept of a session that ends twice: the node's pods would not be reached for 2 to 3 s.")
	for _, port := range l.Ports {
		_, err := netip.ParseAddr(port)
		page.neighbor(port, err != nil, "NODES")
	}
	page.families("NODES", func(page *document) {
		page.add("  neighbor NODES route-map "+RouteMap(l.Rail)+" in",
			"What is not an address of a pod of this rail is not taken, whoever announces it.")
		page.add("  neighbor NODES route-map "+denyAll+" out", "")
		page.add(fmt.Sprintf("  neighbor NODES maximum-prefix %d restart 1", l.MaxPrefixes),
			"A node that announces more loses its whole session, all its pods with it, and may come again after 1 min: keep railwrightd's max_prefixes below.")
	})
	return page.text()
}

type family struct {
	name, word string
	is4        bool
}

var families = []family{{"ipv4", "ip", true}, {"ipv6", "ipv6", false}}

const width = 118

// document being written. A reason that was given already is not repeated.
type document struct {
	lines []string
	given map[string]bool
}

func (d *document) say(format string, arguments ...any) {
	d.lines = append(d.lines, "! "+fmt.Sprintf(format, arguments...))
}

func (d *document) add(line, reason string) {
	if d.given == nil {
		d.given = map[string]bool{}
	}
	if reason != "" && !d.given[reason] {
		d.given[reason] = true
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + "!"
		comment := indent
		for _, word := range strings.Fields(reason) {
			if len(comment)+1+len(word) > width {
				d.lines = append(d.lines, comment)
				comment = indent
			}
			comment += " " + word
		}
		d.lines = append(d.lines, comment)
	}
	d.lines = append(d.lines, line)
}

func (d *document) text() string { return strings.Join(d.lines, "\n") + "\n" }

// first is to stand before the first route map.
func (d *document) first() {
	d.add("!", "")
	d.add("bgp route-map delay-timer 1",
		"bgpd opens no session until this long after the last route map was read: 0.2 s after a start instead of 4 s.")
}

func (d *document) railFilter(rail Rail) {
	name := RouteMap(rail.Name)
	d.add("!", "")
	used := map[bool]bool{}
	for _, prefix := range rail.Prefixes {
		used[prefix.Addr().Is4()] = true
	}
	for _, family := range families {
		number := 0
		for _, prefix := range rail.Prefixes {
			if prefix.Addr().Is4() != family.is4 {
				continue
			}
			number += 5
			d.add(fmt.Sprintf("%s prefix-list %s seq %d permit %s ge %d", family.word, name, number, prefix.Masked(),
				prefix.Addr().BitLen()),
				"Single addresses of the rail's pods, never a network; `ge` 32 and 128.")
		}
	}
	number := 0
	for _, family := range families {
		if !used[family.is4] {
			continue
		}
		number += 10
		d.add(fmt.Sprintf("route-map %s permit %d", name, number), "What no entry permits is denied.")
		d.add(fmt.Sprintf(" match %s address prefix-list %s", family.word, name), "")
		d.add("exit", "")
	}
}

func (d *document) nothing(reason string) {
	d.add("!", "")
	d.add("route-map "+denyAll+" deny 10", reason)
	d.add("exit", "")
	d.add("!", "")
}

func (d *document) router(asn uint32, routerID netip.Addr) {
	d.add(fmt.Sprintf("router bgp %d", asn), "")
	d.add(" bgp router-id "+routerID.String(), "Unique among all BGP speakers.")
	d.add(" no bgp default ipv4-unicast", "A neighbor takes part in the address families that name it, in no other.")
	d.add(" bgp ebgp-requires-policy", "Should a line with a route map get lost, that neighbor is told nothing instead of all.")
}

func (d *document) group(group string, bfd bool) {
	d.add(" neighbor "+group+" peer-group", "")
	d.add(" neighbor "+group+" remote-as external", "Any AS but our own.")
	d.add(" neighbor "+group+" advertisement-interval 0", "An address is announced at once.")
	d.add(" neighbor "+group+" timers 3 9", "Keepalive and hold time, s. A side that hangs is noticed after 9 s; the default is 180 s.")
	d.add(" neighbor "+group+" timers connect 1", "A lost session is tried again each second.")
	d.add(" neighbor "+group+" capability extended-nexthop",
		"IPv4 routes with IPv6 next hops (RFC 8950): one session carries both families.")
	if bfd {
		d.add(" neighbor "+group+" bfd",
			"Notices a path that went silent in 0.9 s instead of 9 s. A bgpd that starts anew may then lose its routes at the leaf for some seconds.")
	}
}

func (d *document) families(group string, policy func(*document)) {
	for _, family := range families {
		d.add(" address-family "+family.name+" unicast", "")
		d.add("  neighbor "+group+" activate", "")
		policy(d)
		d.add(" exit-address-family", "")
	}
	d.add("exit", "")
}

// advertise ourselves on an unnumbered interface: the other side knows our address by this alone.
func (d *document) advertise(name string) {
	d.add("!", "")
	d.add("interface "+name, "")
	d.add(" no ipv6 nd suppress-ra",
		"Router advertisements: the other side learns our link-local address by them, and no address is configured.")
	d.add(" ipv6 nd ra-interval 1", "Each second, not each 10 s: a session comes back that much sooner after FRR starts.")
	d.add(" ipv6 nd ra-lifetime 0", "Not a default router: the other side's kernel shall not send the host's own packets here.")
	d.add("exit", "")
}

func (d *document) neighbor(name string, unnumbered bool, group string) {
	if unnumbered {
		name += " interface"
	}
	d.add(" neighbor "+name+" peer-group "+group, "")
}
