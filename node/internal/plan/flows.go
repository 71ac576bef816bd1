package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"railwright/node/internal/attachment"
)

// Tables in the order that a packet crosses them. OVS resolves goto_table and registers when it builds a datapath flow:
// hardware sees a single match on addresses and a single list of header changes.
const (
	tableClassify    uint8 = 0
	tableGuard       uint8 = 10
	tableSource      uint8 = 11
	tableAnswer      uint8 = 12
	tableDestination uint8 = 20
	tablePairs       uint8 = 30
	tableRate        uint8 = 35
	tableDeliver     uint8 = 40
	tableTest        uint8 = 62
	tableCanary      uint8 = 63
)

// Unserved is an attachment that wants flows and gets none, with the reason.
type Unserved struct {
	Key    attachment.Key
	Reason string
}

// Flows returns all flows of a rail's bridge, sorted, and the attachments that got none. For P local attachments with
// one address each, M members, T tenants with a number, Q peered pairs, and H addresses of the host of which I are
// IPv4, there are 32 + 2 H + I + 12 P + 2 M + T + 2 Q flows, never P times M. An attachment has 12 flows, and 7 more
// for a second address; a pair of tenants has 2. Add 1 for each rate and for each prefix of routers, and for each
// address 1 for each DSCP of CNPs and for each allowed DSCP where others are refused. Subtract 2 for each IPv6 address
// and 1 overall if the datapath cannot answer ND, 1 if the leaf's MAC is unknown, and 4 with KeepTTL. If tenants have
// prefixes instead of addresses, M is the number of prefixes and the total is O(P). A second uplink adds 5 flows, 1 for
// each address of the host and of an attachment, and 2 more while both leaves are up.
func Flows(rail Rail, facts Facts, attachments []attachment.Attachment, tenants Tenants) ([]Flow, []Unserved) {
	all, left := NewPlanner(rail).Flows(facts, attachments, tenants)
	slices.SortFunc(all, func(a, b Flow) int {
		if a.Table != b.Table || a.Priority != b.Priority {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority))
		}
		return cmp.Compare(a.Match, b.Match)
	})
	return all, left
}

// Flows returns what the function Flows does, in any order.
func (p *Planner) Flows(facts Facts, attachments []attachment.Attachment, tenants Tenants) ([]Flow, []Unserved) {
	flows := &flowSet{rail: p.rail, facts: facts, tenants: tenants}
	here, left := usable(p.rail, facts, attachments)
	p.begin(facts)
	flows.all = make([]Flow, 0, p.count)
	flows.addCanary()
	flows.dropRest()
	if facts.Complete() {
		flows.classifyHost()
		flows.answerGateway()
		for _, member := range flows.members() {
			flows.all = append(flows.all, MemberFlows(member, tenants.Numbers[member.Tenant])...)
		}
		flows.refuseDiscovery()
		flows.admitRouterErrors()
		flows.addPairs()
		flows.deliverToLeaf()
	}
	for _, endpoint := range here {
		key := endpoint.cacheKey(tenants.Numbers[endpoint.Tenant])
		flows.all = append(flows.all, p.endpoints.get(key, func() []Flow { return flows.alone().attached(endpoint) })...)
	}
	p.count = len(flows.all)
	return flows.all, left
}

// Complete reports whether enough is known for flows that let traffic in.
func (f Facts) Complete() bool {
	return f.UplinkPort != 0 && f.BridgeMAC != attachment.MAC{}
}

// endpoint is an attachment with the OpenFlow number of its port. All its addresses are valid.
type endpoint struct {
	attachment.Attachment
	port uint32
}

// usable returns the attachments of the rail that can be served, in a fixed order: the attachment added first keeps an
// address or port that two of them claim.
func usable(rail Rail, facts Facts, attachments []attachment.Attachment) ([]endpoint, []Unserved) {
	sorted := slices.Clone(attachments)
	slices.SortFunc(sorted, func(a, b attachment.Attachment) int {
		if order := a.Added.Compare(b.Added); order != 0 {
			return order
		}
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
	var here []endpoint
	var left []Unserved
	taken := claims{addresses: map[netip.Addr]attachment.Key{}, ports: map[uint32]attachment.Key{}}
	for _, address := range facts.HostAddresses {
		taken.addresses[address.Unmap()] = attachment.Key{}
	}
	for _, att := range sorted {
		if att.Rail != rail.Name || !att.Has(attachment.Flows) {
			continue
		}
		port := facts.Ports[att.HostInterface]
		if reason := taken.findObstacle(facts, att, port); reason != "" {
			left = append(left, Unserved{att.Key, reason})
			continue
		}
		taken.take(att, port)
		here = append(here, endpoint{att, port})
	}
	return here, left
}

// claims holds the owners of addresses and ports. An empty key stands for the host.
type claims struct {
	addresses map[netip.Addr]attachment.Key
	ports     map[uint32]attachment.Key
}

func (c claims) take(att attachment.Attachment, port uint32) {
	c.ports[port] = att.Key
	for _, address := range att.Addresses {
		c.addresses[address] = att.Key
	}
}

// findObstacle returns the reason why the attachment cannot get flows, or "".
func (c claims) findObstacle(facts Facts, att attachment.Attachment, port uint32) string {
	if !facts.Complete() {
		return "the bridge's uplink or MAC address is unknown"
	}
	if port == 0 {
		return fmt.Sprintf("port %q has no OpenFlow number on the bridge", att.HostInterface)
	}
	if other, ok := c.ports[port]; ok {
		return fmt.Sprintf("port %q is already in use by %v", att.HostInterface, other)
	}
	if slices.Contains(facts.uplinks(), port) {
		return fmt.Sprintf("port %q is the uplink", att.HostInterface)
	}
	if att.MAC == (attachment.MAC{}) || att.MAC == facts.BridgeMAC {
		return fmt.Sprintf("MAC address %v is not usable for a pod", att.MAC)
	}
	families := map[int]bool{}
	for _, address := range att.Addresses {
		if families[address.BitLen()] {
			return fmt.Sprintf("address %v is the second of its family; a pod can have one IPv4 and one IPv6 address", address)
		}
		families[address.BitLen()] = true
		if !address.IsGlobalUnicast() || address.Zone() != "" || address.Is4In6() {
			return fmt.Sprintf("address %v is not usable for a pod", address)
		}
		if owner, ok := c.addresses[address]; ok {
			if owner == (attachment.Key{}) {
				return fmt.Sprintf("address %v belongs to the host", address)
			}
			return fmt.Sprintf("address %v is already in use by %v", address, owner)
		}
	}
	return ""
}

// Directions of an attachment's traffic. Each has its own meter.
const (
	sends    = 0
	receives = 1
)

// flowSet collects the flows of a bridge.
type flowSet struct {
	rail    Rail
	facts   Facts
	tenants Tenants
	all     []Flow
}

// alone returns an empty set with the same inputs.
func (f *flowSet) alone() *flowSet { return &flowSet{rail: f.rail, facts: f.facts, tenants: f.tenants} }

// attached returns the flows of an attachment.
func (f *flowSet) attached(endpoint endpoint) []Flow {
	f.classifyPort(endpoint)
	f.guard(endpoint)
	f.limitSent(endpoint)
	for _, address := range endpoint.Addresses {
		f.classifyAddress(endpoint, address)
		f.refuseOwnAddress(endpoint, address)
		f.deliverToPod(endpoint, address)
	}
	return f.all
}

func (f *flowSet) add(table uint8, priority uint16, match, actions string, cookie uint64) {
	f.all = append(f.all, Flow{Table: table, Priority: priority, Match: match, Actions: actions, Cookie: cookie})
}

// limitLast limits the flow added last by one of the attachment's two meters, which drop traffic above its rate.
func (f *flowSet) limitLast(endpoint endpoint, direction uint32) {
	if endpoint.MaxRate == 0 {
		return
	}
	last := &f.all[len(f.all)-1]
	last.Meter, last.Rate = 2*uint32(endpoint.Number)+direction, endpoint.MaxRate
	last.Actions = joinTerms(fmt.Sprintf("meter:%d", last.Meter), last.Actions)
}

// addCanary adds a flow that no packet meets. Its presence proves that nobody emptied the tables.
func (f *flowSet) addCanary() {
	f.add(tableCanary, 0, "", drop, Cookie(0, Canary))
}

// dropRest makes every table drop and count unmatched packets, so that a missing flow fails closed.
func (f *flowSet) dropRest() {
	for table, reason := range map[uint8]Reason{
		tableClassify:    DropDefault,
		tableGuard:       DropDefault,
		tableAnswer:      DropDefault,
		tableSource:      DropUnknownSource,
		tableDestination: DropUnknownDestination,
		tablePairs:       DropOtherTenant,
		tableDeliver:     DropDefault,
	} {
		f.add(table, 0, "", drop, Cookie(0, reason))
	}
}
