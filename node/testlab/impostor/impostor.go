// Package impostor generates spoofed frames, as a pod with full control of its network namespace could send them.
package impostor

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

// flushEvery is the number of frames between two ARP requests to the gateway. Its reply shows that the switch has
// processed all frames before it.
const flushEvery = 250

// Mark is part of the spoofed frames, in the payload or as a forged MAC address.
var Mark = attachment.MAC{0x02, 0x66, 0x66, 0x66, 0x66, 0x66}

// Marked reports whether a frame contains Mark: it is a spoofed frame or encapsulates one.
func Marked(frame []byte) bool { return bytes.Contains(frame, Mark[:]) }

// Face holds the addresses of a pod's interface.
type Face struct {
	MAC        attachment.MAC
	IPv4, IPv6 netip.Addr
}

// Impostor is a pod that sends spoofed frames.
type Impostor struct {
	*rand.Rand
	Me Face
	// Gateway is the MAC address of the pod's gateway, GatewayIP its IPv4 address.
	Gateway   attachment.MAC
	GatewayIP netip.Addr
	Victims   []Face
	// Pretends are addresses that the pod does not own, Unrouted those that only the host and the leaf may talk to.
	Pretends, Unrouted []netip.Addr
}

// SendSpoofed sends the given number of spoofed frames, in rotation over all kinds, each frame repeated the given
// number of times. It returns the number of frames sent of each kind.
func (i *Impostor) SendSpoofed(t testing.TB, wire *testlab.Wire, frames, times int) map[string]int {
	t.Helper()
	kinds, sent := i.kinds(), map[string]int{}
	names := slices.Sorted(maps.Keys(kinds))
	var frame []byte
	for n := range frames {
		name := names[n/times%len(names)]
		if n%times == 0 {
			frame = kinds[name]()
		}
		wire.Send(t, frame)
		sent[name]++
		if n%flushEvery == flushEvery-1 || n == frames-1 {
			i.flush(t, wire)
		}
	}
	return sent
}

// Kinds returns the number of kinds of spoofed frames.
func (i *Impostor) Kinds() int { return len(i.kinds()) }

func (i *Impostor) pick(is4 bool) netip.Addr {
	for {
		if address := i.Pretends[i.IntN(len(i.Pretends))]; address.Is4() == is4 {
			return address
		}
	}
}

func (i *Impostor) victim() Face { return i.Victims[i.IntN(len(i.Victims))] }

func (i *Impostor) anyMAC() attachment.MAC {
	switch i.IntN(4) {
	case 0:
		return Mark
	case 1:
		return i.Gateway
	case 2:
		return i.victim().MAC
	}
	mac := attachment.MAC{0x02}
	binary.BigEndian.PutUint32(mac[2:], i.Uint32())
	return mac
}

func (i *Impostor) text() []byte {
	return append(append([]byte{}, Mark[:]...), bytes.Repeat([]byte{byte(i.IntN(256))}, i.IntN(64))...)
}

// Datagram returns an IP packet with a UDP datagram that contains Mark. It draws random ports if none are given.
func (i *Impostor) Datagram(from, to netip.Addr, ports ...uint16) []byte {
	if len(ports) == 0 {
		ports = []uint16{uint16(i.IntN(65536)), uint16(i.IntN(65536))}
	}
	message := testlab.UDP(from, to, ports[0], ports[1], i.text())
	if from.Is4() {
		return testlab.IPv4(from, to, 17, 0, message)
	}
	return testlab.IPv6(from, to, 17, 64, message)
}

// honest returns a packet from the pod's own address to a victim, which no rule drops.
func (i *Impostor) honest(is4 bool) []byte {
	to := i.victim()
	if is4 {
		return i.Datagram(i.Me.IPv4, to.IPv4)
	}
	return i.Datagram(i.Me.IPv6, to.IPv6)
}

// Frame returns an Ethernet frame from the pod to its gateway.
func (i *Impostor) Frame(packet []byte) []byte {
	kind := uint16(testlab.EtherIPv6)
	if packet[0]>>4 == 4 {
		kind = testlab.EtherIPv4
	}
	return testlab.Ether(i.Gateway, i.Me.MAC, kind, packet)
}

// kinds returns the generators of spoofed frames by kind. Each call of a generator returns a new random frame.
func (i *Impostor) kinds() map[string]func() []byte {
	either := func() bool { return i.IntN(2) == 0 }
	everybody6, allNodes := netip.MustParseAddr("ff02::1"), attachment.MAC{0x33, 0x33, 0, 0, 0, 1}
	return map[string]func() []byte{
		"MAC": func() []byte {
			packet := i.honest(either())
			framed := i.Frame(packet)
			source := i.anyMAC()
			copy(framed[6:12], source[:])
			return framed
		},
		"IPv4": func() []byte { return i.Frame(i.Datagram(i.pick(true), i.victim().IPv4)) },
		"IPv6": func() []byte { return i.Frame(i.Datagram(i.pick(false), i.victim().IPv6)) },
		"ARP": func() []byte {
			sender, from := i.anyMAC(), i.Me.MAC
			if either() {
				from = sender
			}
			message := testlab.ARP(uint16(1+i.IntN(2)), sender, i.pick(true), Mark, i.victim().IPv4)
			return testlab.Ether(testlab.Broadcast, from, testlab.EtherARP, message)
		},
		"neighbour discovery": func() []byte {
			from, kind := i.pick(false), byte(133+i.IntN(5))
			message := testlab.Discovery(from, everybody6, kind, 0x20000000, i.pick(false), byte(1+i.IntN(2)), Mark)
			return testlab.Ether(allNodes, i.Me.MAC, testlab.EtherIPv6, testlab.IPv6(from, everybody6, 58, 255, message))
		},
		"DHCP": func() []byte { return i.dhcp() },
		"VLAN": func() []byte {
			framed := testlab.Tagged(uint16(i.IntN(65536)), i.Frame(i.honest(either())))
			if either() {
				framed = testlab.Tagged(uint16(i.IntN(65536)), framed)
				binary.BigEndian.PutUint16(framed[12:], 0x88a8)
			}
			return framed
		},
		"fragments":   func() []byte { return i.fragment(either()) },
		"not routed":  func() []byte { return i.unrouted(either()) },
		"other kinds": func() []byte { return i.strange() },
	}
}

func (i *Impostor) dhcp() []byte {
	all4, none := netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified()
	switch i.IntN(3) {
	case 0:
		return testlab.Ether(testlab.Broadcast, i.Me.MAC, testlab.EtherIPv4, i.Datagram(none, all4, 68, 67))
	case 1:
		return testlab.Ether(testlab.Broadcast, i.Me.MAC, testlab.EtherIPv4, i.Datagram(i.Me.IPv4, all4, 67, 68))
	}
	servers := netip.MustParseAddr("ff02::1:2")
	return testlab.Ether(attachment.MAC{0x33, 0x33, 0, 1, 0, 2}, i.Me.MAC, testlab.EtherIPv6,
		i.Datagram(i.Me.IPv6, servers, 546, 547))
}

// fragment returns a first or later fragment of a packet with a forged source.
func (i *Impostor) fragment(is4 bool) []byte {
	if is4 {
		field := []uint16{0x2000, uint16(1 + i.IntN(0x1fff)), 0x2000 | uint16(1+i.IntN(0x1fff))}[i.IntN(3)]
		return i.Frame(testlab.IPv4(i.pick(true), i.victim().IPv4, 17, field, i.text()))
	}
	header := []byte{17, 0, byte(i.IntN(256)), byte(i.IntN(256)), 0, 0, 0, 9}
	return i.Frame(testlab.IPv6(i.pick(false), i.victim().IPv6, 44, 64, append(header, i.text()...)))
}

// unrouted returns a frame that bypasses the gateway (broadcast or to a victim's MAC), or a packet to an unrouted
// address.
func (i *Impostor) unrouted(is4 bool) []byte {
	framed := i.Frame(i.honest(is4))
	switch i.IntN(3) {
	case 0:
		copy(framed, testlab.Broadcast[:])
	case 1:
		to := i.victim().MAC
		copy(framed, to[:])
	default:
		to := i.Unrouted[i.IntN(len(i.Unrouted))]
		return i.Frame(i.Datagram(i.Me.IPv4, to, 179, 179))
	}
	return framed
}

// strange returns a frame of another protocol, or a truncated IPv4 packet.
func (i *Impostor) strange() []byte {
	if i.IntN(2) == 0 {
		kinds := []uint16{0x88cc, 0x8847, 0x8863, 0x8864, 0x8915, 0x8906, 0x22f3, 0x0000, uint16(i.IntN(65536)), 0x88e7}
		kind := kinds[i.IntN(len(kinds))]
		if slices.Contains([]uint16{testlab.EtherIPv4, testlab.EtherIPv6, testlab.EtherARP}, kind) {
			kind = 0x88cc
		}
		to := []attachment.MAC{i.Gateway, testlab.Broadcast, {0x01, 0x80, 0xc2}}[i.IntN(3)]
		return testlab.Ether(to, i.Me.MAC, kind, bytes.Repeat(Mark[:], 10))
	}
	packet := i.Datagram(i.pick(true), i.victim().IPv4)
	packet[0] = byte(0x40 | i.IntN(16))
	return testlab.Ether(i.Gateway, i.Me.MAC, testlab.EtherIPv4, packet[:20+i.IntN(len(packet)-19)])
}

// flush waits until the switch has processed all frames sent before.
func (i *Impostor) flush(t testing.TB, wire *testlab.Wire) {
	t.Helper()
	isReply := func(frame []byte) bool {
		return len(frame) >= 42 && binary.BigEndian.Uint16(frame[12:]) == testlab.EtherARP && frame[21] == 2
	}
	wire.Forget()
	wire.Send(t, testlab.Ether(testlab.Broadcast, i.Me.MAC, testlab.EtherARP,
		testlab.ARP(1, i.Me.MAC, i.Me.IPv4, attachment.MAC{}, i.GatewayIP)))
	testlab.Eventually(t, "the gateway answers", func() bool { return wire.Count(isReply) > 0 })
}
