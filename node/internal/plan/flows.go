package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"railwright/node/internal/attachment"
)

// The tables, in the order that a packet meets them. OVS follows goto_table when it makes a flow of the datapath, and
// leaves registers out of that: what hardware sees is one match on addresses and one list of header changes.
const (
	tableClassify    uint8 = 0
	tableGuard       uint8 = 10
	tableSource      uint8 = 11
	tableAnswer      uint8 = 12
	tableDestination uint8 = 20
	tablePairs       uint8 = 30
	tableRate        uint8 = 35
	tableDeliver     uint8 = 40
	tableTry         uint8 = 62
	tableCanary      uint8 = 63
)

// Left is an attachment that wants flows and gets none, and why.
type Left struct {
	Key attachment.Key
	Why string
}

// Flows of a rail's bridge, all of them, sorted; and the attachments that got none. For P attachments here with one
// address each, M members, T tenants with a number, Q peered pairs, and H addresses of the host of which I are IPv4,
// there are 32 + 2 H + I + 12 P + 2 M + T + 2 Q flows, never P times M. An attachment has 12, and 7 more for a second
// address; a pair of tenants has 2. Besides: 1 more for each rate and for each prefix of routers; for each address 1 more
// for each DSCP that is allowed where others are refused; 2 less for each IPv6 address and 1 less for all where the
// datapath cannot answer ND; 1 less where the leaf's MAC is not known; 4 less with KeepTTL. With prefixes of tenants in
// place of addresses M is the number of prefixes, and the whole is O(P).
func Flows(rail Rail, facts Facts, attachments []attachment.Attachment, tenants Tenants) ([]Flow, []Left) {
	flows := &flowSet{rail: rail, facts: facts, tenants: tenants}
	here, left := usable(rail, facts, attachments)
	flows.canary()
	flows.dropRest()
	if facts.complete() {
		flows.classifyHost()
		flows.answerGateway()
		flows.membership()
		flows.pairs()
		flows.deliverToLeaf()
	}
	for _, endpoint := range here {
		flows.classifyPort(endpoint)
		flows.guard(endpoint)
		flows.boundSent(endpoint)
		for _, address := range endpoint.Addresses {
			flows.classifyAddress(endpoint, address)
			flows.refuseOwnAddress(endpoint, address)
			flows.deliverToPod(endpoint, address)
		}
	}
	slices.SortFunc(flows.all, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Match, b.Match))
	})
	return flows.all, left
}

func (f Facts) complete() bool {
	return f.UplinkPort != 0 && f.BridgeMAC != attachment.MAC{}
}

// local is an attachment with its port's number; its addresses are all good.
type local struct {
	attachment.Attachment
	port uint32
}

// usable attachments of the rail, in a fixed order: the one that was added first keeps what two of them claim.
func usable(rail Rail, facts Facts, attachments []attachment.Attachment) ([]local, []Left) {
	sorted := slices.Clone(attachments)
	slices.SortFunc(sorted, func(a, b attachment.Attachment) int {
		return cmp.Or(a.Added.Compare(b.Added), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	var here []local
	var left []Left
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
			left = append(left, Left{att.Key, reason})
			continue
		}
		taken.take(att, port)
		here = append(here, local{att, port})
	}
	return here, left
}

// claims are what belongs to an attachment, or with an empty key to the host.
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

// why the attachment cannot get flows; empty: it can.
func (c claims) findObstacle(facts Facts, att attachment.Attachment, port uint32) string {
	if !facts.complete() {
		return "the bridge's uplink or MAC address is not known"
	}
	if port == 0 {
		return fmt.Sprintf("%q is no port of the bridge with an OpenFlow number", att.HostInterface)
	}
	if other, ok := c.ports[port]; ok {
		return fmt.Sprintf("the port %q is already that of %v", att.HostInterface, other)
	}
	if port == facts.UplinkPort {
		return fmt.Sprintf("the port %q is the uplink", att.HostInterface)
	}
	if att.MAC == (attachment.MAC{}) || att.MAC == facts.BridgeMAC {
		return fmt.Sprintf("%v cannot be the MAC address of a pod", att.MAC)
	}
	families := map[int]bool{}
	for _, address := range att.Addresses {
		if families[address.BitLen()] {
			return fmt.Sprintf("%v is a second address of its family", address)
		}
		families[address.BitLen()] = true
		if !address.IsGlobalUnicast() || address.Zone() != "" || address.Is4In6() {
			return fmt.Sprintf("%v cannot be the address of a pod", address)
		}
		if owner, ok := c.addresses[address]; ok {
			if owner == (attachment.Key{}) {
				return fmt.Sprintf("%v is the host's own address", address)
			}
			return fmt.Sprintf("%v is already the address of %v", address, owner)
		}
	}
	return ""
}

// Directions of an attachment, each with a meter of its own.
const (
	sends    = 0
	receives = 1
)

// flowSet is what is being put together.
type flowSet struct {
	rail    Rail
	facts   Facts
	tenants Tenants
	all     []Flow
}

func (f *flowSet) add(table uint8, priority uint16, match, actions string, cookie uint64) {
	f.all = append(f.all, Flow{Table: table, Priority: priority, Match: match, Actions: actions, Cookie: cookie})
}

// bound the flow added last by one of the attachment's two meters: what is above its rate is dropped.
func (f *flowSet) bound(endpoint local, direction uint32) {
	if endpoint.MaxRate == 0 {
		return
	}
	last := &f.all[len(f.all)-1]
	last.Meter, last.Rate = 2*uint32(endpoint.Number)+direction, endpoint.MaxRate
	last.Actions = joinTerms(fmt.Sprintf("meter:%d", last.Meter), last.Actions)
}

// canary is never met by a packet: that it is there says that nobody has emptied the tables.
func (f *flowSet) canary() {
	f.add(tableCanary, 0, "", drop, Cookie(0, Canary))
}

// dropRest is what every table does with what it was not told about, so that a missing flow fails closed and is
// counted.
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
