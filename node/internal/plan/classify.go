package plan

import (
	"fmt"
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
func (f *flowSet) classifyHost() {
	uplink := joinTerms(inPort(f.facts.UplinkPort), untagged)
	pass := Cookie(0, Pass)
	for _, match := range []string{
		joinTerms(uplink, "arp"),
		joinTerms(uplink, "ipv6", "ipv6_dst=fe80::/10"),
		joinTerms(uplink, "ipv6", "ipv6_dst=ff02::/16"),
	} {
		f.add(tableClassify, priorityHost, match, toHost, pass)
	}
	addresses := slices.SortedFunc(slices.Values(f.facts.HostAddresses), netip.Addr.Compare)
	for _, address := range slices.Compact(addresses) {
		address = address.Unmap().WithZone("")
		if address.IsValid() && !address.IsLinkLocalUnicast() {
			f.add(tableClassify, priorityHost, joinTerms(uplink, destination(single(address))), toHost, pass)
			f.classifyFromHost(address)
		}
	}
	f.sentByHost("arp,arp_sha="+f.facts.BridgeMAC.String(), "arp_spa=0.0.0.0") // it looks whether an address is free
	f.sentByHost("ipv6", "ipv6_src=fe80::/10")
	f.sentByHost("icmp6", "ipv6_src=::")
	f.add(tableClassify, priorityUnknown, fromHost, drop, Cookie(0, DropSpoofed))
	// The leaf still has a route to a pod that is gone; or it floods, and none of that is for a pod.
	f.add(tableClassify, priorityUnknown, joinTerms(uplink, etherDestination(f.facts.BridgeMAC)), drop,
		Cookie(0, DropUnknownDestination))
	f.add(tableClassify, priorityUplinkRest, inPort(f.facts.UplinkPort), drop, Cookie(0, DropNotForUs))
}

// classifyFromHost lets the host speak as itself alone. A pod in the host's network that may send raw frames could
// otherwise send as any pod of another node: by its MAC it is the bridge.
func (f *flowSet) classifyFromHost(address netip.Addr) {
	f.sentByHost(source(single(address)))
	if address.Is4() {
		f.sentByHost("arp,arp_sha="+f.facts.BridgeMAC.String(), fmt.Sprintf("arp_spa=%v", address))
	}
}

func (f *flowSet) sentByHost(match ...string) {
	f.add(tableClassify, priorityHost, joinTerms(fromHost, untagged, etherSource(f.facts.BridgeMAC), joinTerms(match...)),
		output(f.facts.UplinkPort), Cookie(0, Pass))
}

// classifyAddress takes what the leaf routes to a pod here. Only frames to the bridge's own MAC: nothing that is
// flooded or multicast reaches a pod.
func (f *flowSet) classifyAddress(endpoint local, address netip.Addr) {
	match := joinTerms(inPort(f.facts.UplinkPort), untagged, etherDestination(f.facts.BridgeMAC),
		destination(single(address)))
	f.add(tableClassify, priorityPodAddress, match, goTo(tableSource), Cookie(endpoint.Number, Pass))
}

func (f *flowSet) classifyPort(endpoint local) {
	f.add(tableClassify, priorityPort, joinTerms(inPort(endpoint.port), untagged), goTo(tableGuard), Cookie(endpoint.Number, Pass))
	f.add(tableClassify, priorityPortRest, inPort(endpoint.port), drop, Cookie(endpoint.Number, DropSpoofed))
}
