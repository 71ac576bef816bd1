package plan

import (
	"fmt"
	"net/netip"

	"railwright/node/internal/attachment"
)

const (
	priorityEnds = 300
	priorityHere = 200
	priorityBack = 150
	priorityLeaf = 100
)

// deliverToPod adds the last hop: from the leaf or from another local pod straight to the port.
func (f *flowSet) deliverToPod(endpoint endpoint, address netip.Addr) {
	f.add(tableDeliver, priorityHere, destination(single(address)),
		joinTerms(f.hop(endpoint.MAC), output(endpoint.port)), Cookie(endpoint.Number, Received))
	f.limitLast(endpoint, receives)
}

// deliverToLeaf sends everything else that is allowed to the leaf, except packets that came from the leaf: they would
// loop.
func (f *flowSet) deliverToLeaf() {
	f.endTTL()
	f.add(tableDeliver, priorityBack, fmt.Sprintf("reg%d=1", registerByUplink), drop,
		Cookie(0, DropUnknownDestination))
	ways := f.facts.ways()
	if len(ways) == 0 {
		f.add(tableDeliver, priorityLeaf, "", drop, Cookie(0, DropNoLeaf))
		return
	}
	for _, protocol := range []string{"ip", "ipv6"} {
		for i, way := range ways {
			match := protocol
			if len(ways) == 2 {
				match = lastBit(protocol, i)
			}
			f.add(tableDeliver, priorityLeaf, match, joinTerms(f.hop(way.Leaf), output(way.Port)), Cookie(0, Pass))
		}
	}
}

// lastBit matches destinations with this last bit, which share two leaves. An earlier table matched the whole address, so
// this makes no further flow in the datapath.
func lastBit(protocol string, bit int) string {
	if protocol == "ip" {
		return fmt.Sprintf("ip,nw_dst=0.0.0.%d/0.0.0.1", bit)
	}
	return fmt.Sprintf("ipv6,ipv6_dst=::%d/::1", bit)
}

// endTTL drops packets whose TTL a router would have to answer with an error. Decrementing a TTL of 1 sends each packet
// to ovs-vswitchd for a controller that does not exist; a flow that drops stays in the datapath.
func (f *flowSet) endTTL() {
	if f.rail.KeepTTL {
		return
	}
	for _, protocol := range []string{"ip", "ipv6"} {
		for ttl := range 2 {
			f.add(tableDeliver, priorityEnds, fmt.Sprintf("%s,nw_ttl=%d", protocol, ttl), drop, Cookie(0, DropNotForUs))
		}
	}
}

// hop returns the actions of a router: new MAC addresses and, unless KeepTTL is set, a decremented TTL.
func (f *flowSet) hop(next attachment.MAC) string {
	if f.rail.KeepTTL {
		return setEther(f.facts.BridgeMAC, next)
	}
	return joinTerms(setEther(f.facts.BridgeMAC, next), "dec_ttl")
}
