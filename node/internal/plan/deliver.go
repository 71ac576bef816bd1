package plan

import (
	"fmt"
	"net/netip"

	"railwright/node/internal/attachment"
)

const (
	priorityHere = 200
	priorityBack = 150
	priorityLeaf = 100
)

// deliverToPod is the last hop: from the leaf or from another pod here, straight to the port.
func (flows *flowSet) deliverToPod(one local, address netip.Addr) {
	flows.add(tableDeliver, priorityHere, destination(single(address)),
		words(flows.hop(one.MAC), output(one.port)), Cookie(one.Number, Received))
	flows.bound(one, receives)
}

// deliverToLeaf takes everything else that may go; never what came from there, or it would go round.
func (flows *flowSet) deliverToLeaf() {
	flows.add(tableDeliver, priorityBack, fmt.Sprintf("reg%d=1", registerByUplink), drop,
		Cookie(0, DropUnknownDestination))
	if flows.facts.LeafMAC == (attachment.MAC{}) {
		flows.add(tableDeliver, priorityLeaf, "", drop, Cookie(0, DropNoLeaf))
		return
	}
	for _, protocol := range []string{"ip", "ipv6"} {
		flows.add(tableDeliver, priorityLeaf, protocol,
			words(flows.hop(flows.facts.LeafMAC), output(flows.facts.UplinkPort)), Cookie(0, Pass))
	}
}

// hop is what a router does with a packet.
func (flows *flowSet) hop(next attachment.MAC) string {
	if flows.rail.KeepTTL {
		return setEther(flows.facts.BridgeMAC, next)
	}
	return words(setEther(flows.facts.BridgeMAC, next), "dec_ttl")
}
