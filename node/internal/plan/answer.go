package plan

import (
	"fmt"

	"railwright/node/internal/attachment"
)

// priorityReply is the priority of all flows that build an answer.
const priorityReply = 100

// toAdvertisement runs one table earlier than the rest: OVS lets a flow set nd_tll only if it matches on type 136.
const toAdvertisement = "set_field:136->icmpv6_type"

// answerGateway turns requests that the guard accepted into the gateway's replies and sends them back. OVS runs these
// actions in ovs-vswitchd on every datapath, because it has no other way to rewrite ARP and ND, so hardware never takes
// them. A pod asks rarely, or never if the plugin wrote a permanent neighbour entry.
func (f *flowSet) answerGateway() {
	mac := f.facts.BridgeMAC
	toSender := fmt.Sprintf("move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:%v->eth_src", mac)
	f.add(tableAnswer, priorityReply, "arp", joinTerms(
		toSender,
		"set_field:2->arp_op",
		"move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
		fmt.Sprintf("set_field:%v->arp_sha", mac),
		"move:NXM_OF_ARP_TPA[]->NXM_NX_REG3[]",
		"move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
		"move:NXM_NX_REG3[]->NXM_OF_ARP_SPA[]",
		ingress,
	), Cookie(0, Pass))
	if f.facts.AnswersND {
		reply := AdvertiseNeighbour(f.facts)
		f.add(tableAnswer, priorityReply, reply.Match, reply.Actions, Cookie(0, Pass))
	}
}

// AdvertiseNeighbour returns the flow that turns a solicitation into an advertisement. Not every datapath takes it.
// 0xe0000000 are the flags router, solicited and override; option 2 is the target's link-layer address. Both are moved
// there from a register: above the kernel's datapath OVS refuses to set these fields to a value, although ovs-vswitchd
// itself does the work and accepts a move.
func AdvertiseNeighbour(facts Facts) Flow {
	return Flow{
		Table:    tableAnswer,
		Priority: priorityReply,
		Match:    "icmp6,icmp_type=136,icmp_code=0",
		Actions: joinTerms(
			fmt.Sprintf("move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:%v->eth_src", facts.BridgeMAC),
			"move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[]",
			"move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_SRC[]",
			"set_field:255->nw_ttl",
			"set_field:0xe0000000->reg3,move:NXM_NX_REG3[]->ERICOXM_OF_ICMPV6_ND_RESERVED[]",
			"set_field:2->reg3,move:NXM_NX_REG3[0..7]->ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE[]",
			fmt.Sprintf("set_field:%v->nd_tll", facts.BridgeMAC),
			ingress,
		),
		Cookie: Cookie(0, Pass),
	}
}

// NDTestFlow returns a flow that no packet meets. A bridge that takes it also takes the flows that answer neighbour
// solicitations.
func NDTestFlow() Flow {
	flow := AdvertiseNeighbour(Facts{BridgeMAC: attachment.MAC{2}})
	flow.Table = tableTest
	return flow
}

// NoFlow returns a flow that is never programmed, so that to delete it changes nothing.
func NoFlow() Flow { return Flow{Table: tableTest} }
