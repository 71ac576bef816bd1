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

// deliverToPod is the last hop: from the leaf or from another pod here, straight to the port.
func (f *flowSet) deliverToPod(endpoint local, address netip.Addr) {
	f.add(tableDeliver, priorityHere, destination(single(address)),
		joinTerms(f.hop(endpoint.MAC), output(endpoint.port)), Cookie(endpoint.Number, Received))
	f.bound(endpoint, receives)
}

// deliverToLeaf takes everything else that may go; never what came from there, or it would go round.
func (f *flowSet) deliverToLeaf() {
	f.endTTL()
	f.add(tableDeliver, priorityBack, fmt.Sprintf("reg%d=1", registerByUplink), drop,
		Cookie(0, DropUnknownDestination))
	if f.facts.LeafMAC == (attachment.MAC{}) {
		f.add(tableDeliver, priorityLeaf, "", drop, Cookie(0, DropNoLeaf))
		return
	}
	for _, protocol := range []string{"ip", "ipv6"} {
		f.add(tableDeliver, priorityLeaf, protocol,
			joinTerms(f.hop(f.facts.LeafMAC), output(f.facts.UplinkPort)), Cookie(0, Pass))
	}
}

// endTTL drops what a hop would have to answer with an error. To decrement a TTL of 1 is work for ovs-vswitchd, packet by
// packet, for a controller that is not there; a flow that drops is the datapath's own.
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

// hop is what a router does with a packet.
func (f *flowSet) hop(next attachment.MAC) string {
	if f.rail.KeepTTL {
		return setEther(f.facts.BridgeMAC, next)
	}
	return joinTerms(setEther(f.facts.BridgeMAC, next), "dec_ttl")
}
