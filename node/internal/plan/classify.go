package plan

import (
	"fmt"
	"net/netip"
	"slices"
)

// Priorities of the classifying table. The host's addresses precede the pods', so that no pod can take the address that
// the host's BGP uses.
const (
	priorityHost       = 400
	priorityPodAddress = 300
	priorityPort       = 200
	priorityPortRest   = 100
	priorityUnknown    = 50
	priorityUplinkRest = 10
)

// classifyHost lets the host and the leaf exchange ARP, neighbour discovery, link-local traffic and traffic of the
// host's own addresses, and nothing else.
func (f *flowSet) classifyHost() {
	var own []netip.Addr
	for _, address := range f.facts.HostAddresses {
		if address = address.Unmap().WithZone(""); address.IsValid() && !address.IsLinkLocalUnicast() {
			own = append(own, address)
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	own = slices.Compact(own)
	for _, port := range f.facts.uplinks() {
		f.classifyUplink(port, own)
	}
	for _, address := range own {
		f.classifyFromHost(address)
	}
	f.admitFromHost("arp,arp_sha="+f.facts.BridgeMAC.String(), "arp_spa=0.0.0.0") // address conflict detection
	f.admitFromHost("ipv6", "ipv6_src=fe80::/10")
	f.admitFromHost("icmp6", "ipv6_src=::")
	f.add(tableClassify, priorityUnknown, fromHost, drop, Cookie(0, DropSpoofed))
}

// classifyUplink admits traffic to the host from an uplink.
func (f *flowSet) classifyUplink(port uint32, own []netip.Addr) {
	uplink := joinTerms(inPort(port), untagged)
	matches := []string{
		joinTerms(uplink, "arp"),
		joinTerms(uplink, "ipv6", "ipv6_dst=fe80::/10"),
		joinTerms(uplink, "ipv6", "ipv6_dst=ff02::/16"),
	}
	for _, address := range own {
		matches = append(matches, joinTerms(uplink, destination(single(address))))
	}
	for _, match := range matches {
		f.add(tableClassify, priorityHost, match, toHost, Cookie(0, Pass))
	}
	// The leaf still has a route to a deleted pod, or it floods. Neither is for a pod here.
	f.add(tableClassify, priorityUnknown, joinTerms(uplink, etherDestination(f.facts.BridgeMAC)), drop,
		Cookie(0, DropUnknownDestination))
	f.add(tableClassify, priorityUplinkRest, inPort(port), drop, Cookie(0, DropNotForUs))
}

// classifyFromHost lets the host send only as itself. By its MAC the host is the bridge, so a pod in the host's network
// with raw sockets could otherwise send as any pod of another node.
func (f *flowSet) classifyFromHost(address netip.Addr) {
	f.admitFromHost(source(single(address)))
	if address.Is4() {
		f.admitFromHost("arp,arp_sha="+f.facts.BridgeMAC.String(), fmt.Sprintf("arp_spa=%v", address))
	}
}

// admitFromHost sends what matches to every leaf: each takes only what has its MAC address, and requests of a neighbour.
func (f *flowSet) admitFromHost(match ...string) {
	var outputs []string
	for _, port := range f.facts.uplinks() {
		outputs = append(outputs, output(port))
	}
	f.add(tableClassify, priorityHost, joinTerms(fromHost, untagged, etherSource(f.facts.BridgeMAC), joinTerms(match...)),
		joinTerms(outputs...), Cookie(0, Pass))
}

// classifyAddress admits traffic that the leaf routes to a pod here. It requires the bridge's own MAC, so that no
// flooded or multicast frame reaches a pod.
func (f *flowSet) classifyAddress(endpoint endpoint, address netip.Addr) {
	for _, port := range f.facts.uplinks() {
		match := joinTerms(inPort(port), untagged, etherDestination(f.facts.BridgeMAC), destination(single(address)))
		f.add(tableClassify, priorityPodAddress, match, goTo(tableSource), Cookie(endpoint.Number, Pass))
	}
}

func (f *flowSet) classifyPort(endpoint endpoint) {
	f.add(tableClassify, priorityPort, joinTerms(inPort(endpoint.port), untagged), goTo(tableGuard), Cookie(endpoint.Number, Pass))
	f.add(tableClassify, priorityPortRest, inPort(endpoint.port), drop, Cookie(endpoint.Number, DropSpoofed))
}
