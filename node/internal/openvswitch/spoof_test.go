package openvswitch

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// framesPerKind is the number of frames of each kind. The tests of the whole lab send 100,000.
const framesPerKind = 2000

// marker marks every crafted frame: as payload, or as the MAC address that a pod pretends to have.
var marker = attachment.MAC{0x02, 0x66, 0x66, 0x66, 0x66, 0x66}

func marked(frame []byte) bool { return bytes.Contains(frame, marker[:]) }

var (
	gateway  = attachment.MAC{2, 0, 0, 0, 0, 1}
	allNodes = attachment.MAC{0x33, 0x33, 0, 0, 0, 1}
	nobody   = netip.IPv4Unspecified()
	outsider = netip.MustParseAddr("10.66.66.66")
)

type crafted struct {
	frame  []byte
	reason plan.Reason
}

// crafted4 returns spoofed IPv4 and ARP frames of a pod, each with the reason for its drop.
func crafted4(me, victim *labPod) map[string]crafted {
	address, other := me.ipv4(), victim.ipv4()
	datagram := func(source, destination netip.Addr, from, to uint16) []byte {
		return testlab.IPv4(source, destination, 17, 0, testlab.UDP(source, destination, from, to, marker[:]))
	}
	toGateway := func(payload []byte) []byte { return testlab.Ether(gateway, me.MAC, testlab.EtherIPv4, payload) }
	arp := func(from attachment.MAC, message []byte) []byte {
		return testlab.Ether(testlab.Broadcast, from, testlab.EtherARP, message)
	}
	piece := func(fragment uint16) []byte {
		return testlab.IPv4(outsider, other, 17, fragment, append(marker[:], 1, 2))
	}
	good := datagram(address, other, 7, 7)
	all := netip.MustParseAddr("255.255.255.255")
	broadcast := func(payload []byte) []byte {
		return testlab.Ether(testlab.Broadcast, me.MAC, testlab.EtherIPv4, payload)
	}
	return map[string]crafted{
		"another MAC":            {testlab.Ether(gateway, marker, testlab.EtherIPv4, good), plan.DropSpoofed},
		"the gateway's MAC":      {testlab.Ether(gateway, gateway, testlab.EtherIPv4, good), plan.DropSpoofed},
		"a neighbour's IPv4":     {toGateway(datagram(other, remoteIPv4, 7, 7)), plan.DropSpoofed},
		"a remote pod's IPv4":    {toGateway(datagram(remoteIPv4, other, 7, 7)), plan.DropSpoofed},
		"an outsider's IPv4":     {toGateway(datagram(outsider, other, 7, 7)), plan.DropSpoofed},
		"the host's IPv4":        {toGateway(datagram(netip.MustParseAddr("10.0.0.0"), other, 179, 179)), plan.DropSpoofed},
		"first fragment":         {toGateway(piece(0x2000)), plan.DropSpoofed},
		"later fragment":         {toGateway(piece(0x0001)), plan.DropSpoofed},
		"DHCP client":            {broadcast(datagram(nobody, all, 68, 67)), plan.DropSpoofed},
		"DHCP server":            {broadcast(datagram(address, all, 67, 68)), plan.DropNotForUs},
		"straight to another":    {testlab.Ether(victim.MAC, me.MAC, testlab.EtherIPv4, good), plan.DropNotForUs},
		"broadcast":              {broadcast(good), plan.DropNotForUs},
		"VLAN 5":                 {testlab.Tagged(5, toGateway(good)), plan.DropSpoofed},
		"VLAN 0 with a priority": {testlab.Tagged(0xe000, toGateway(good)), plan.DropSpoofed},
		"two VLAN tags":          {testlab.Tagged(5, testlab.Tagged(6, toGateway(good))), plan.DropSpoofed},
		"unknown protocol": {testlab.Ether(gateway, me.MAC, 0x8915, bytes.Repeat(marker[:], 10)),
			plan.DropSpoofed},
		"ARP reply for another":   {arp(me.MAC, testlab.ARP(2, marker, other, victim.MAC, other)), plan.DropSpoofed},
		"ARP reply for gateway":   {arp(me.MAC, testlab.ARP(2, marker, me.Gateways[0], victim.MAC, other)), plan.DropSpoofed},
		"ARP with another MAC":    {arp(marker, testlab.ARP(1, marker, address, attachment.MAC{}, other)), plan.DropSpoofed},
		"ARP with false contents": {arp(me.MAC, testlab.ARP(1, marker, address, attachment.MAC{}, other)), plan.DropSpoofed},
		"ARP as another":          {arp(me.MAC, testlab.ARP(1, me.MAC, other, marker, other)), plan.DropSpoofed},
	}
}

// crafted6 returns the same for IPv6 and neighbour discovery.
func crafted6(me, victim *labPod) map[string]crafted {
	address, other := me.ipv6(), victim.ipv6()
	everybody := netip.MustParseAddr("ff02::1")
	datagram := func(source, destination netip.Addr) []byte {
		return testlab.IPv6(source, destination, 17, 64, testlab.UDP(source, destination, 7, 7, marker[:]))
	}
	toGateway := func(payload []byte) []byte { return testlab.Ether(gateway, me.MAC, testlab.EtherIPv6, payload) }
	multicast := func(payload []byte) []byte { return testlab.Ether(allNodes, me.MAC, testlab.EtherIPv6, payload) }
	discovery := func(from attachment.MAC, source netip.Addr, kind byte, target netip.Addr, option byte) []byte {
		message := testlab.Discovery(source, everybody, kind, 0x20000000, target, option, marker)
		return testlab.Ether(allNodes, from, testlab.EtherIPv6, testlab.IPv6(source, everybody, 58, 255, message))
	}
	// A fragment header: next is UDP, offset 1 or more fragments to come.
	fragment := func(offset byte) []byte {
		return toGateway(testlab.IPv6(remoteIPv6, other, 44, 64, append([]byte{17, 0, 0, offset, 0, 0, 0, 9}, marker[:]...)))
	}
	good := datagram(address, other)
	local := netip.MustParseAddr("fe80::1")
	return map[string]crafted{
		"another MAC, IPv6":          {testlab.Ether(gateway, marker, testlab.EtherIPv6, good), plan.DropSpoofed},
		"a neighbour's IPv6":         {toGateway(datagram(other, remoteIPv6)), plan.DropSpoofed},
		"a remote pod's IPv6":        {toGateway(datagram(remoteIPv6, other)), plan.DropSpoofed},
		"the gateway's IPv6":         {toGateway(datagram(local, other)), plan.DropNotForUs},
		"no IPv6":                    {toGateway(datagram(netip.IPv6Unspecified(), other)), plan.DropNotForUs},
		"first fragment, IPv6":       {fragment(1), plan.DropSpoofed},
		"later fragment, IPv6":       {fragment(8), plan.DropSpoofed},
		"VLAN 5, IPv6":               {testlab.Tagged(5, toGateway(good)), plan.DropSpoofed},
		"straight, IPv6":             {testlab.Ether(victim.MAC, me.MAC, testlab.EtherIPv6, good), plan.DropNotForUs},
		"multicast, IPv6":            {multicast(datagram(address, everybody)), plan.DropNotForUs},
		"ND: advertises another pod": {discovery(me.MAC, other, 136, other, 2), plan.DropSpoofed},
		"ND: advertises the gateway": {discovery(me.MAC, local, 136, local, 2), plan.DropNotForUs},
		"ND: another MAC":            {discovery(marker, address, 135, other, 1), plan.DropSpoofed},
		"ND: false contents":         {discovery(me.MAC, address, 135, other, 1), plan.DropNotForUs},
		"router advertisement":       {discovery(me.MAC, local, 134, local, 1), plan.DropNotForUs},
		"redirect by the gateway":    {discovery(me.MAC, local, 137, other, 2), plan.DropNotForUs},
		"ND: asks as another pod":    {discovery(me.MAC, other, 135, local, 1), plan.DropSpoofed},
	}
}

func TestSpoofedFramesAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	me, victim := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	rail.member("a", remoteIPv4, remoteIPv6)
	rail.program(t)
	mine := testlab.OpenWire(t, me.namespace, "eth0")
	watched := map[string]*testlab.Wire{
		"the pod": testlab.OpenWire(t, victim.namespace, "eth0"), "the host": testlab.OpenWire(t, rail.host, bridgeName),
		"the leaf": testlab.OpenWire(t, rail.leaf, "swp1"), "beyond the leaf": testlab.OpenWire(t, rail.remote, "eth0"),
	}
	// A valid frame must be visible at the wires; otherwise the test could not fail.
	honest := testlab.UDP(me.ipv4(), victim.ipv4(), 7, 7, marker[:])
	mine.Send(t, testlab.Ether(gateway, me.MAC, testlab.EtherIPv4, testlab.IPv4(me.ipv4(), victim.ipv4(), 17, 0, honest)))
	testlab.Eventually(t, "a valid datagram and the closed port's reply", func() bool {
		return watched["the pod"].Count(marked) == 1 && mine.Count(marked) == 1
	})
	watched["the pod"].Forget()
	mine.Forget()

	kinds := crafted4(me, victim)
	maps.Copy(kinds, crafted6(me, victim))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		rail.expectDropped(t, mine, me, kind, kinds[kind])
		for where, wire := range watched {
			if arrived := wire.Frames(marked); len(arrived) > 0 {
				t.Errorf("%s: %d frames arrived at %s: %s", kind, len(arrived), where, testlab.FrameText(arrived[0]))
				wire.Forget()
			}
		}
		if answers := mine.Count(marked); answers > 0 {
			t.Errorf("%s: answered %d times", kind, answers)
			mine.Forget()
		}
	}
}

// expectDropped sends frames of a kind and checks that all of them are counted with their reason.
func (l *lab) expectDropped(t *testing.T, mine *testlab.Wire, me *labPod, kind string, frame crafted) {
	t.Helper()
	before := l.readCounters(t)[plan.Cookie(me.Number, frame.reason)].Packets
	for n := range framesPerKind {
		mine.Send(t, frame.frame)
		if n%100 == 99 {
			askGateway(t, mine, me)
		}
	}
	counted := l.readCounters(t)[plan.Cookie(me.Number, frame.reason)].Packets - before
	if frame.reason == plan.DropNotForUs && counted > framesPerKind && counted < framesPerKind+10 {
		counted = framesPerKind // the pod's own kernel occasionally sends such frames too
	}
	if counted != framesPerKind {
		t.Errorf("%s: %d of %d frames counted as %v", kind, counted, framesPerKind, frame.reason)
	}
}

// TestDiscoveryIsNotRouted checks that neighbour discovery between pods is dropped at the routed hop, after the guard.
func TestDiscoveryIsNotRouted(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	me, victim := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	rail.rail.KeepTTL = true
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	rail.program(t)
	mine, there := testlab.OpenWire(t, me.namespace, "eth0"), testlab.OpenWire(t, victim.namespace, "eth0")
	address, other := me.ipv6(), victim.ipv6()
	for kind := byte(133); kind <= 137; kind++ {
		message := testlab.Discovery(address, other, kind, 0x60000000, victim.Gateways[1], 2, marker)
		frame := testlab.Ether(gateway, me.MAC, testlab.EtherIPv6, testlab.IPv6(address, other, 58, 255, message))
		for range 100 {
			mine.Send(t, frame)
		}
		askGateway(t, mine, me)
	}
	if arrived := there.Count(marked); arrived != 0 {
		t.Errorf("%d messages of neighbour discovery arrived", arrived)
	}
	if refused := rail.readCounters(t)[plan.Cookie(0, plan.DropNotForUs)].Packets; refused < 500 {
		t.Errorf("%d of 500 counted", refused)
	}
	if ttl, err := ping(me.namespace, other); err != nil || ttl != "64" {
		t.Errorf("kept TTL: %q %v", ttl, err)
	}
}

// sumDropped sums the packets with a reason.
func sumDropped(counters map[uint64]Count, reason plan.Reason) uint64 {
	var sum uint64
	for cookie, count := range counters {
		if _, r, _ := plan.ParseCookie(cookie); r == reason {
			sum += count.Packets
		}
	}
	return sum
}

// askGateway sends an ARP request and waits for the answer. Frames sent before it are then processed, because a port
// has a single queue.
func askGateway(t *testing.T, wire *testlab.Wire, me *labPod) {
	t.Helper()
	askFor(t, wire, me.MAC, me.ipv4(), me.Gateways[0])
}

func askFor(t *testing.T, wire *testlab.Wire, mac attachment.MAC, address, other netip.Addr) {
	t.Helper()
	answers := func(frame []byte) bool {
		return len(frame) >= 42 && frame[12] == 8 && frame[13] == 6 && frame[21] == 2 && bytes.Equal(frame[22:28], gateway[:])
	}
	before := wire.Count(answers)
	request := testlab.ARP(1, mac, address, attachment.MAC{}, other)
	wire.Send(t, testlab.Ether(testlab.Broadcast, mac, testlab.EtherARP, request))
	testlab.Eventually(t, "ARP reply", func() bool { return wire.Count(answers) > before })
}
