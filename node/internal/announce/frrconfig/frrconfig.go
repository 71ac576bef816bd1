// Package frrconfig generates the FRR configuration of a node and of its rail leaves, each line with its reason. The
// daemon never writes it: it is printed for the operator to read, change and keep.
//
// Two filters keep a bug in the daemon from announcing a prefix that belongs to no pod: one where routes enter BGP (only
// prefixes of the rail's own pods), and one where they leave it (a leaf is sent only prefixes of its own rail's pods).
// With Vty the daemon adds each prefix itself, so that only the second filter is independent of it.
package frrconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Backend selects how routes enter FRR.
type Backend string

// KernelTable needs FRR 10. Vty is for older releases, whose kernel tables are IPv4 only.
const (
	KernelTable Backend = "kernel-table"
	Vty         Backend = "vty"
)

// Node describes a node. Its values come from the operator and are already checked: interface names, addresses and
// numbers, nothing else.
type Node struct {
	Backend  Backend
	ASN      uint32
	RouterID netip.Addr
	// BFD requires bfdd on the node and on the leaf.
	BFD   bool
	Rails []Rail
}

// Rail is a rail of a node.
type Rail struct {
	Name string
	// Interface is the rail's bridge, the interface towards the leaf.
	Interface string
	// Peer is the leaf's address. The zero value means unnumbered.
	Peer netip.Addr
	// Second is the second leaf's address. The zero value means that there is none.
	Second netip.Addr
	// Table is the kernel table that the daemon writes the rail's host routes to.
	Table int
	// Prefixes contain the addresses of all pods of the rail, on every node.
	Prefixes []netip.Prefix
}

// RouteMap returns the name of a rail's route map and prefix lists. Routes of the vty backend refer to it, which
// distinguishes them from the operator's.
func RouteMap(rail string) string { return "railwright-" + rail }

// denyAll is the name of the route map that denies everything.
const denyAll = "railwright-nothing"

// neighbor returns FRR's name of the leaf.
func (r Rail) neighbor() string {
	if r.Peer.IsValid() {
		return r.Peer.String()
	}
	return r.Interface
}

// neighbors returns FRR's names of the rail's leaves.
func (r Rail) neighbors() []string {
	if r.Second.IsValid() {
		return []string{r.neighbor(), r.Second.String()}
	}
	return []string{r.neighbor()}
}

// Text returns the node's frr.conf.
func (n Node) Text() string {
	page := &document{}
	n.head(page)
	if n.Backend == Vty {
		page.comment("bgpd opens no session until 5 s after a start, its default for route maps. Until then a leaf keeps the pods' routes,")
		page.comment("and then drops those that bgpd lacks when the session is up: railwrightd has that time to add them again.")
	} else {
		page.addDelayTimer()
	}
	for _, rail := range n.Rails {
		page.railFilter(rail)
	}
	page.addDenyAll("The leaf's routes are not needed: OpenFlow sends pods' packets to the leaf, not the host's routes.")
	page.router(n.ASN, n.RouterID)
	page.add(" bgp graceful-restart",
		"When bgpd dies, the leaf keeps the pods' routes until bgpd is back (120 s at most): pods' packets do not pass FRR.")
	page.add(" bgp graceful-restart preserve-fw-state",
		"Announces that to the leaf. Without it the leaf drops the routes when bgpd comes back, before it receives them again.")
	// FRR ends an unnumbered session together with its interface, whatever is configured here.
	if slices.ContainsFunc(n.Rails, func(rail Rail) bool { return rail.Peer.IsValid() }) {
		page.add(" no bgp fast-external-failover",
			"A start of ovs-vswitchd takes the bridge's interface down for a moment (userspace datapath); with this line the session survives it. A new session may end again at once if both sides open it at the same moment, and a leaf deletes the kept routes of a session that ends twice.")
	}
	if n.Backend == Vty {
		page.add(" no bgp network import-check",
			"A pod's address is in no routing table of the host. Without this line bgpd would not announce it.")
	}
	page.group("LEAVES", n.BFD)
	for _, rail := range n.Rails {
		for _, name := range rail.neighbors() {
			page.neighbor(name, !rail.Peer.IsValid(), "LEAVES")
		}
	}
	page.families("LEAVES", n.policy)
	for _, rail := range n.Rails {
		if !rail.Peer.IsValid() {
			page.advertise(rail.Interface)
		}
	}
	return page.text()
}

func (n Node) policy(page *document) {
	for _, rail := range n.Rails {
		if n.Backend == KernelTable {
			page.add(fmt.Sprintf("  redistribute table-direct %d route-map %s", rail.Table, RouteMap(rail.Name)),
				"First filter: only the rail's pods enter BGP from the rail's table.")
		}
	}
	page.add("  neighbor LEAVES route-map "+denyAll+" in", "")
	for _, rail := range n.Rails {
		for _, name := range rail.neighbors() {
			page.add("  neighbor "+name+" route-map "+RouteMap(rail.Name)+" out",
				"Second filter: only the rail's own pods go to the rail's leaf.")
		}
	}
}

func (n Node) head(page *document) {
	page.comment("FRR of a node, for railwrightd's %s backend.", n.Backend)
	if n.Backend == KernelTable {
		page.comment("Needs FRR 10: FRR 8 cannot import IPv6 from a kernel table. The daemon writes a blackhole route for each")
		page.comment("pod's address to the rail's table, which no rule looks up. FRR redistributes the tables.")
	} else {
		page.comment("For FRR 8.4 and later. The daemon adds and removes `network` lines in bgpd's memory through its vty socket,")
		page.comment("each with a rail's route map, and never saves them. Without these route maps nothing is announced.")
	}
	page.comment("/etc/frr/daemons: bgpd=yes%s", map[bool]string{true: ", bfdd=yes"}[n.BFD])
}

// Leaf describes the leaf's side: an example for a leaf that runs FRR, and the rules for any other leaf.
type Leaf struct {
	ASN      uint32
	RouterID netip.Addr
	BFD      bool
	Rail     string
	Prefixes []netip.Prefix
	// MaxPrefixes is the number of prefixes of each address family that a node may announce. railwrightd's max_prefixes
	// must stay below it.
	MaxPrefixes int
	// Ports are the ports to nodes: interface names (unnumbered), or the nodes' addresses.
	Ports []string
}

// Text returns the part of the leaf's frr.conf that concerns nodes.
func (l Leaf) Text() string {
	page := &document{}
	page.comment("FRR of a rail leaf: the part that concerns its nodes. Sessions with spines are configured separately.")
	page.addDelayTimer()
	page.railFilter(Rail{Name: l.Rail, Prefixes: l.Prefixes})
	page.addDenyAll("Nodes need no routes: their flows send all outgoing packets to this leaf.")
	page.router(l.ASN, l.RouterID)
	page.group("NODES", l.BFD)
	page.add(" neighbor NODES passive",
		"Nodes open the session. If both sides do so at the same moment, FRR may end the session that it has just established. A leaf deletes the kept routes of a session that ends twice, and the node's pods would be unreachable for 2 to 3 s.")
	for _, port := range l.Ports {
		_, err := netip.ParseAddr(port)
		page.neighbor(port, err != nil, "NODES")
	}
	page.families("NODES", func(page *document) {
		page.add("  neighbor NODES route-map "+RouteMap(l.Rail)+" in",
			"Accepts only addresses of this rail's pods, whoever announces them.")
		page.add("  neighbor NODES route-map "+denyAll+" out", "")
		page.add(fmt.Sprintf("  neighbor NODES maximum-prefix %d restart 1", l.MaxPrefixes),
			"A node that announces more loses its whole session, with all its pods, and may reconnect after 1 min. Keep railwrightd's max_prefixes below.")
	})
	for _, port := range l.Ports {
		if _, err := netip.ParseAddr(port); err != nil {
			page.advertise(port)
		}
	}
	return page.text()
}

type family struct {
	name, word string
	is4        bool
}

var families = []family{{"ipv4", "ip", true}, {"ipv6", "ipv6", false}}

const width = 118

// document collects the lines of a configuration. It prints each reason once.
type document struct {
	lines   []string
	printed map[string]bool
}

func (d *document) comment(format string, arguments ...any) {
	d.lines = append(d.lines, "! "+fmt.Sprintf(format, arguments...))
}

func (d *document) add(line, reason string) {
	if d.printed == nil {
		d.printed = map[string]bool{}
	}
	if reason != "" && !d.printed[reason] {
		d.printed[reason] = true
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

// addDelayTimer must precede the first route map.
func (d *document) addDelayTimer() {
	d.add("!", "")
	d.add("bgp route-map delay-timer 1",
		"Delay in s between reading the last route map and opening sessions: they open 0.2 s after a start instead of 4 s.")
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
				"Single addresses of the rail's pods, never a network: `ge` 32 and 128.")
		}
	}
	number := 0
	for _, family := range families {
		if !used[family.is4] {
			continue
		}
		number += 10
		d.add(fmt.Sprintf("route-map %s permit %d", name, number), "A route map denies everything that no entry permits.")
		d.add(fmt.Sprintf(" match %s address prefix-list %s", family.word, name), "")
		d.add("exit", "")
	}
}

func (d *document) addDenyAll(reason string) {
	d.add("!", "")
	d.add("route-map "+denyAll+" deny 10", reason)
	d.add("exit", "")
	d.add("!", "")
}

func (d *document) router(asn uint32, routerID netip.Addr) {
	d.add(fmt.Sprintf("router bgp %d", asn), "")
	d.add(" bgp router-id "+routerID.String(), "Unique among all BGP speakers.")
	d.add(" no bgp default ipv4-unicast", "A neighbor takes part in the address families that name it, in no other.")
	d.add(" bgp ebgp-requires-policy", "A neighbor that lost its route map receives nothing instead of everything.")
}

func (d *document) group(group string, bfd bool) {
	d.add(" neighbor "+group+" peer-group", "")
	d.add(" neighbor "+group+" remote-as external", "Any AS but our own.")
	d.add(" neighbor "+group+" advertisement-interval 0", "An address is announced at once.")
	d.add(" neighbor "+group+" timers 3 9", "Keepalive and hold time in s. A peer that hangs is detected after 9 s; the default is 180 s.")
	d.add(" neighbor "+group+" timers connect 1", "A lost session is retried every second.")
	d.add(" neighbor "+group+" capability extended-nexthop",
		"IPv4 routes with IPv6 next hops (RFC 8950): one session carries both families.")
	if bfd {
		d.add(" neighbor "+group+" bfd",
			"Detects a silent path in 0.9 s instead of 9 s. A restarted bgpd may then lose its routes at the leaf for some seconds. With an unnumbered neighbor that has never been up, enter this line when its session is up: FRR 10 may otherwise keep BFD and the session down for good.")
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

// advertise enables router advertisements on an unnumbered interface: they are how the peers learn each other's
// address. It follows the neighbor, so that the peer usually learns the address after its neighbor is configured: if
// FRR 10 already knows the address then, it creates the BFD session without an interface. That session stays down until
// the peer's BFD packets arrive, and BGP waits for it. zebra also learns the address from an advertisement that arrives
// before it has read its configuration, which no order of lines prevents.
func (d *document) advertise(name string) {
	d.add("!", "")
	d.add("interface "+name, "")
	d.add(" no ipv6 nd suppress-ra",
		"Router advertisements tell the peer our link-local address, so that no address has to be configured. They follow the neighbors: FRR 10 may keep BFD down for good if it knows an address before its neighbor is configured.")
	d.add(" ipv6 nd ra-interval 1", "Every second instead of every 10 s, so that a session comes back sooner after FRR starts.")
	d.add(" ipv6 nd ra-lifetime 0", "Not a default router: the peer's kernel must not send the host's own packets here.")
	d.add("exit", "")
}

func (d *document) neighbor(name string, unnumbered bool, group string) {
	if unnumbered {
		name += " interface"
	}
	d.add(" neighbor "+name+" peer-group "+group, "")
}
