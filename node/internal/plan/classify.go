package plan

import (
	"net/netip"
	"slices"
)

// Priorities of the classifying table. The host's addresses come before the pods': no pod can take the address that the
// host's BGP speaks from.
const (
	priorityHost       = 400
	priorityPodAddress = 300
	priorityPort       = 200
	priorityPortRest   = 100
	priorityUnknown    = 50
	priorityUplinkRest = 10
)

// classifyHost lets the host and the leaf find each other and speak: ARP, neighbour discovery, link-local addresses and
// the host's own ones, and nothing else.
func (flows *flowSet) classifyHost() {
	uplink := words(inPort(flows.facts.UplinkPort), untagged)
	pass := Cookie(0, Pass)
	for _, match := range []string{
		words(uplink, "arp"),
		words(uplink, "ipv6", "ipv6_dst=fe80::/10"),
		words(uplink, "ipv6", "ipv6_dst=ff02::/16"),
	} {
		flows.add(tableClassify, priorityHost, match, toHost, pass)
	}
	addresses := slices.SortedFunc(slices.Values(flows.facts.HostAddresses), netip.Addr.Compare)
	for _, address := range slices.Compact(addresses) {
		if address = address.Unmap().WithZone(""); address.IsValid() && !address.IsLinkLocalUnicast() {
			flows.add(tableClassify, priorityHost, words(uplink, destination(single(address))), toHost, pass)
		}
	}
	flows.add(tableClassify, priorityHost, words(fromHost, etherSource(flows.facts.BridgeMAC)),
		output(flows.facts.UplinkPort), pass)
	// The leaf still has a route to a pod that is gone; or it floods, and none of that is for a pod.
	flows.add(tableClassify, priorityUnknown, words(uplink, etherDestination(flows.facts.BridgeMAC)), drop,
		Cookie(0, DropUnknownDestination))
	flows.add(tableClassify, priorityUplinkRest, inPort(flows.facts.UplinkPort), drop, Cookie(0, DropNotForUs))
}

// classifyAddress takes what the leaf routes to a pod here. Only frames to the bridge's own MAC: nothing that is
// flooded or multicast reaches a pod.
func (flows *flowSet) classifyAddress(one local, address netip.Addr) {
	match := words(inPort(flows.facts.UplinkPort), untagged, etherDestination(flows.facts.BridgeMAC),
		destination(single(address)))
	flows.add(tableClassify, priorityPodAddress, match, goTo(tableSource), Cookie(one.Number, Pass))
}

func (flows *flowSet) classifyPort(one local) {
	flows.add(tableClassify, priorityPort, words(inPort(one.port), untagged), goTo(tableGuard), Cookie(one.Number, Pass))
	flows.add(tableClassify, priorityPortRest, inPort(one.port), drop, Cookie(one.Number, DropSpoofed))
}
