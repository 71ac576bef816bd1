package lab

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

// spoofedFrames are sent in all; none of them may arrive.
const spoofedFrames = 100_000

// flushEvery so many frames the gateway is asked by ARP: its answer says that all before was worked off.
const flushEvery = 250

// spoofMark is in each of them: in the payload, or as the address that somebody pretends to have.
var spoofMark = attachment.MAC{0x02, 0x66, 0x66, 0x66, 0x66, 0x66}

func isSpoof(frame []byte) bool { return bytes.Contains(frame, spoofMark[:]) }

// impostor is a pod that owns its network namespace, and lies.
type impostor struct {
	*rand.Rand
	me       *attached
	gateway  attachment.MAC
	victims  []*attached
	pretends []netip.Addr // addresses that are not its own
}

func (i *impostor) pick(is4 bool) netip.Addr {
	for {
		if address := i.pretends[i.IntN(len(i.pretends))]; address.Is4() == is4 {
			return address
		}
	}
}

func (i *impostor) victim() *attached { return i.victims[i.IntN(len(i.victims))] }

func (i *impostor) anyMAC() attachment.MAC {
	switch i.IntN(4) {
	case 0:
		return spoofMark
	case 1:
		return i.gateway
	case 2:
		return i.victim().mac
	}
	mac := attachment.MAC{0x02}
	binary.BigEndian.PutUint32(mac[2:], i.Uint32())
	return mac
}

func (i *impostor) text() []byte {
	return append(append([]byte{}, spoofMark[:]...), bytes.Repeat([]byte{byte(i.IntN(256))}, i.IntN(64))...)
}

func (i *impostor) datagram(from, to netip.Addr, ports ...uint16) []byte {
	if len(ports) == 0 {
		ports = []uint16{uint16(i.IntN(65536)), uint16(i.IntN(65536))}
	}
	message := testlab.UDP(from, to, ports[0], ports[1], i.text())
	if from.Is4() {
		return testlab.IPv4(from, to, 17, 0, message)
	}
	return testlab.IPv6(from, to, 17, 64, message)
}

// honest packet of the pod, as no guard stops it.
func (i *impostor) honest(is4 bool) []byte {
	to := i.victim()
	if is4 {
		return i.datagram(i.me.ipv4, to.ipv4)
	}
	return i.datagram(i.me.ipv6, to.ipv6)
}

func (i *impostor) frame(packet []byte) []byte {
	kind := uint16(testlab.EtherIPv6)
	if packet[0]>>4 == 4 {
		kind = testlab.EtherIPv4
	}
	return testlab.Ether(i.gateway, i.me.mac, kind, packet)
}

// kinds of lies; each call makes another frame.
func (i *impostor) kinds() map[string]func() []byte {
	either := func() bool { return i.IntN(2) == 0 }
	everybody6, allNodes := netip.MustParseAddr("ff02::1"), attachment.MAC{0x33, 0x33, 0, 0, 0, 1}
	return map[string]func() []byte{
		"MAC": func() []byte {
			packet := i.honest(either())
			framed := i.frame(packet)
			source := i.anyMAC()
			copy(framed[6:12], source[:])
			return framed
		},
		"IPv4": func() []byte { return i.frame(i.datagram(i.pick(true), i.victim().ipv4)) },
		"IPv6": func() []byte { return i.frame(i.datagram(i.pick(false), i.victim().ipv6)) },
		"ARP": func() []byte {
			sender, from := i.anyMAC(), i.me.mac
			if either() {
				from = sender
			}
			message := testlab.ARP(uint16(1+i.IntN(2)), sender, i.pick(true), spoofMark, i.victim().ipv4)
			return testlab.Ether(testlab.Broadcast, from, testlab.EtherARP, message)
		},
		"neighbour discovery": func() []byte {
			from, kind := i.pick(false), byte(133+i.IntN(5))
			message := testlab.Discovery(from, everybody6, kind, 0x20000000, i.pick(false), byte(1+i.IntN(2)), spoofMark)
			return testlab.Ether(allNodes, i.me.mac, testlab.EtherIPv6, testlab.IPv6(from, everybody6, 58, 255, message))
		},
		"DHCP": func() []byte { return i.dhcp() },
		"VLAN": func() []byte {
			framed := testlab.Tagged(uint16(i.IntN(65536)), i.frame(i.honest(either())))
			if either() {
				framed = testlab.Tagged(uint16(i.IntN(65536)), framed)
				binary.BigEndian.PutUint16(framed[12:], 0x88a8)
			}
			return framed
		},
		"fragments":   func() []byte { return i.fragment(either()) },
		"not routed":  func() []byte { return i.around(either()) },
		"other kinds": func() []byte { return i.strange() },
	}
}

func (i *impostor) dhcp() []byte {
	all4, none := netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified()
	switch i.IntN(3) {
	case 0:
		return testlab.Ether(testlab.Broadcast, i.me.mac, testlab.EtherIPv4, i.datagram(none, all4, 68, 67))
	case 1:
		return testlab.Ether(testlab.Broadcast, i.me.mac, testlab.EtherIPv4, i.datagram(i.me.ipv4, all4, 67, 68))
	}
	servers := netip.MustParseAddr("ff02::1:2")
	return testlab.Ether(attachment.MAC{0x33, 0x33, 0, 1, 0, 2}, i.me.mac, testlab.EtherIPv6,
		i.datagram(i.me.ipv6, servers, 546, 547))
}

// fragment of a packet with a false source, the first one or a later one.
func (i *impostor) fragment(is4 bool) []byte {
	if is4 {
		field := []uint16{0x2000, uint16(1 + i.IntN(0x1fff)), 0x2000 | uint16(1+i.IntN(0x1fff))}[i.IntN(3)]
		return i.frame(testlab.IPv4(i.pick(true), i.victim().ipv4, 17, field, i.text()))
	}
	header := []byte{17, 0, byte(i.IntN(256)), byte(i.IntN(256)), 0, 0, 0, 9}
	return i.frame(testlab.IPv6(i.pick(false), i.victim().ipv6, 44, 64, append(header, i.text()...)))
}

// around the gateway: straight to a neighbour, to all, to the host and to the leaf.
func (i *impostor) around(is4 bool) []byte {
	framed := i.frame(i.honest(is4))
	switch i.IntN(3) {
	case 0:
		copy(framed, testlab.Broadcast[:])
	case 1:
		to := i.victim().mac
		copy(framed, to[:])
	default:
		node := i.me.pod.node
		to := []netip.Addr{node.Rails[0].Address(), node.Rails[0].LeafAddress(), netip.MustParseAddr("224.0.0.5")}[i.IntN(3)]
		return i.frame(i.datagram(i.me.ipv4, to, 179, 179))
	}
	return framed
}

// strange frames: of other protocols, and cut short.
func (i *impostor) strange() []byte {
	if i.IntN(2) == 0 {
		kinds := []uint16{0x88cc, 0x8847, 0x8863, 0x8864, 0x8915, 0x8906, 0x22f3, 0x0000, uint16(i.IntN(65536)), 0x88e7}
		kind := kinds[i.IntN(len(kinds))]
		if slices.Contains([]uint16{testlab.EtherIPv4, testlab.EtherIPv6, testlab.EtherARP}, kind) {
			kind = 0x88cc
		}
		to := []attachment.MAC{i.gateway, testlab.Broadcast, {0x01, 0x80, 0xc2}}[i.IntN(3)]
		return testlab.Ether(to, i.me.mac, kind, bytes.Repeat(spoofMark[:], 10))
	}
	packet := i.datagram(i.pick(true), i.victim().ipv4)
	packet[0] = byte(0x40 | i.IntN(16))
	return testlab.Ether(i.gateway, i.me.mac, testlab.EtherIPv4, packet[:20+i.IntN(len(packet)-19)])
}

// spoofing: nothing that a pod makes up arrives at another pod, at the leaf or at the host.
func spoofing(t *testing.T, fabric *fabric) {
	node, other := fabric.nodes[0], fabric.nodes[1]
	me, near, stranger := node.attachedPod(t, "red-1", 0), node.attachedPod(t, "red-2", 0), node.attachedPod(t, "alone", 0)
	far := other.attachedPod(t, "red-1", 0)
	fabric.mustSettle(t)
	gateway, err := attachment.ParseMAC(node.Rails[0].BridgeMAC())
	if err != nil {
		t.Fatal(err)
	}
	liar := &impostor{
		Rand: rand.New(rand.NewPCG(9, 9)), me: me.rail[0], gateway: gateway, victims: []*attached{near.rail[0], far.rail[0]},
		pretends: []netip.Addr{
			near.rail[0].ipv4, far.rail[0].ipv4, stranger.rail[0].ipv4, node.Rails[0].Address(), node.Rails[0].LeafAddress(),
			netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.77.77"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("127.0.0.1"),
			near.rail[0].ipv6, far.rail[0].ipv6, stranger.rail[0].ipv6, netip.MustParseAddr("fd00:1:1::1"), netip.MustParseAddr("fe80::1"),
			netip.MustParseAddr("2001:db8::66"), netip.MustParseAddr("::1"), netip.MustParseAddr("fd00:1:77::77"),
		},
	}
	mine := testlab.OpenWire(t, me.Namespace, faceOf(0))
	watched := map[string]*testlab.Wire{
		"the same tenant's pod": testlab.OpenWire(t, near.Namespace, faceOf(0)),
		"another tenant's pod":  testlab.OpenWire(t, stranger.Namespace, faceOf(0)),
		"a pod on another node": testlab.OpenWire(t, far.Namespace, faceOf(0)),
		"the host":              testlab.OpenWire(t, node.Host, bridgeOf(0)),
		"the leaf":              testlab.OpenWire(t, fabric.leaves[0].Namespace, "swp1"),
	}
	liar.seenWhereHonest(t, mine, watched)
	before := me.received(t)
	sent := map[string]int{}
	kinds := liar.kinds()
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for n := range spoofedFrames {
		name := names[n%len(names)]
		mine.Send(t, kinds[name]())
		sent[name]++
		if n%flushEvery == flushEvery-1 {
			liar.flush(t, mine)
		}
	}
	if taken := me.received(t) - before; taken < spoofedFrames {
		t.Errorf("Open vSwitch took %d of %d frames: that none arrived proves less", taken, spoofedFrames)
	}
	for where, wire := range watched {
		if arrived := wire.Frames(isSpoof); len(arrived) > 0 {
			t.Errorf("%d frames arrived at %s: %s", len(arrived), where, testlab.FrameText(arrived[0]))
		}
	}
	t.Logf("0 of %d frames arrived: %v", spoofedFrames, sent)
}

// seenWhereHonest: an honest datagram with the mark is seen by the wires that it comes by, so that a blind one is found.
func (i *impostor) seenWhereHonest(t *testing.T, mine *testlab.Wire, watched map[string]*testlab.Wire) {
	t.Helper()
	near, far := watched["the same tenant's pod"], watched["a pod on another node"]
	for _, victim := range i.victims {
		mine.Send(t, i.frame(i.datagram(i.me.ipv4, victim.ipv4, 7, 7)))
		mine.Send(t, i.frame(i.datagram(i.me.ipv6, victim.ipv6, 7, 7)))
	}
	testlab.Eventually(t, 5*time.Second, "honest datagrams are seen where they pass", func() bool {
		return near.Count(isSpoof) == 2 && far.Count(isSpoof) == 2 && watched["the leaf"].Count(isSpoof) >= 2
	})
	testlab.Eventually(t, 10*time.Second, "the host's own packets are seen", func() bool {
		return watched["the host"].Count(func([]byte) bool { return true }) > 0
	})
	// The pods refuse the datagrams (no such port), and what they send back has the mark too.
	testlab.Eventually(t, 5*time.Second, "the refusals are back", func() bool { return mine.Count(isSpoof) == 4 })
	for _, wire := range watched {
		wire.Forget()
	}
}

// flush: what was sent before has been worked off.
func (i *impostor) flush(t *testing.T, wire *testlab.Wire) {
	t.Helper()
	answer := func(frame []byte) bool {
		return len(frame) >= 42 && binary.BigEndian.Uint16(frame[12:]) == testlab.EtherARP && frame[21] == 2
	}
	wire.Forget()
	gateway := netip.MustParseAddr("10.1.1.1")
	wire.Send(t, testlab.Ether(testlab.Broadcast, i.me.mac, testlab.EtherARP,
		testlab.ARP(1, i.me.mac, i.me.ipv4, attachment.MAC{}, gateway)))
	testlab.Eventually(t, 10*time.Second, "the gateway answers", func() bool { return wire.Count(answer) > 0 })
}

// received frames of the pod's port, by Open vSwitch's own count.
func (p *pod) received(t *testing.T) int {
	t.Helper()
	told := p.node.OVS.Ofctl(t, bridgeOf(0), "dump-ports", p.rail[0].port)
	_, rest, _ := strings.Cut(told, "rx pkts=")
	number, _, _ := strings.Cut(rest, ",")
	count, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%q: %v", told, err)
	}
	return count
}
