package lab

import (
	"encoding/binary"
	"net/netip"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

// scope is how far a protocol's packets should travel.
type scope int

const (
	routed    scope = iota // to an address, through the gateway
	asked                  // a request that the gateway answers and nobody else receives
	onLink                 // a message to the link without an answer
	multicast              // to a multicast group
	tagged                 // with a VLAN tag
)

// protocol is a kind of packet that all speakers send to all ends.
type protocol struct {
	name  string
	scope scope
	// stopped reports that a router on the way drops the packets although their addresses are valid.
	stopped bool
	// make returns a frame from a speaker to an end that contains mark.
	make func(from speaker, to *end, mark []byte) []byte
}

// cellDSCP is the DSCP of every packet of the matrix. Rules match it to keep kernels from answering.
const cellDSCP = 3

var (
	mark4, mark6 = netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff02::1")
	everywhere   = netip.MustParseAddr("ff0e::1")
	allOnLink    = netip.MustParseAddr("255.255.255.255")
	groupMAC4    = attachment.MAC{0x01, 0x00, 0x5e, 1, 1, 1}
	groupMAC6    = attachment.MAC{0x33, 0x33, 0, 0, 0, 1}
)

const (
	port7            = 7
	protoICMP        = 1
	protoIPv4        = 4
	protoTCP         = 6
	protoUDP         = 17
	protoRouting     = 43
	protoFragment    = 44
	protoGRE         = 47
	protoICMPv6      = 58
	protoOptions     = 60
	protoExperiment  = 253
	firstOfFragments = 0x2000
	laterFragment    = 0x0010
)

// protocols returns the protocols of the matrix.
func protocols() []protocol {
	all := []protocol{
		{"ARP request", asked, false, func(from speaker, to *end, mark []byte) []byte { return from.arp(1, to, mark) }},
		{arpReply, onLink, false, func(from speaker, to *end, mark []byte) []byte { return from.arp(2, to, mark) }},
		{"neighbour solicitation", asked, false, func(from speaker, to *end, mark []byte) []byte {
			return from.discovery(135, to.ipv6, 1, mark)
		}},
		{"neighbour advertisement", onLink, false, func(from speaker, _ *end, mark []byte) []byte {
			return from.discovery(136, from.ipv6, 2, mark)
		}},
		{"router advertisement", onLink, false, func(from speaker, _ *end, mark []byte) []byte {
			return from.discovery(134, from.ipv6, 1, mark)
		}},
	}
	for name, made := range map[string]func(speaker, *end, []byte) []byte{
		"IPv4 multicast": func(from speaker, _ *end, mark []byte) []byte { return from.group(groupMAC4, mark4, mark) },
		"IPv4 broadcast": func(from speaker, _ *end, mark []byte) []byte {
			return from.group(testlab.Broadcast, allOnLink, mark)
		},
		linkGroup:        func(from speaker, _ *end, mark []byte) []byte { return from.group(groupMAC6, mark6, mark) },
		"IPv6 multicast": func(from speaker, _ *end, mark []byte) []byte { return from.group(groupMAC6, everywhere, mark) },
	} {
		all = append(all, protocol{name, multicast, false, made})
	}
	for name, made := range map[string]func(speaker, *end, []byte) []byte{
		"VLAN, IPv4": func(from speaker, to *end, mark []byte) []byte { return testlab.Tagged(5, from.udp4(to, mark)) },
		"VLAN, IPv6": func(from speaker, to *end, mark []byte) []byte { return testlab.Tagged(0xe005, from.udp6(to, mark)) },
		"VLAN 0":     func(from speaker, to *end, mark []byte) []byte { return testlab.Tagged(0xe000, from.udp4(to, mark)) },
		"VLAN, ARP":  func(from speaker, to *end, mark []byte) []byte { return testlab.Tagged(5, from.arp(1, to, mark)) },
		"QinQ": func(from speaker, to *end, mark []byte) []byte {
			return testlab.TaggedAs(testlab.EtherQinQ, 5, testlab.Tagged(6, from.udp4(to, mark)))
		},
		"QinQ, IPv6": func(from speaker, to *end, mark []byte) []byte {
			return testlab.TaggedAs(testlab.EtherQinQ, 5, testlab.Tagged(6, from.udp6(to, mark)))
		},
	} {
		all = append(all, protocol{name, tagged, false, made})
	}
	return append(append(all, routed4()...), routed6()...)
}

// arpReply is a protocol that nobody answers and that no sender may use.
const arpReply = "ARP reply"

// linkGroup is the protocol that the host accepts from its leaf, because neighbour discovery needs it.
const linkGroup = "IPv6 multicast of the link"

func routed4() []protocol {
	of := func(name string, payload func(from, to netip.Addr, mark []byte) (byte, []byte), fragment uint16) protocol {
		return protocol{name, routed, false, func(from speaker, to *end, mark []byte) []byte {
			next, text := payload(from.ipv4, to.ipv4, mark)
			return from.frameTo(to, testlab.IPv4(from.ipv4, to.ipv4, next, fragment, text))
		}}
	}
	raw := func(number byte) func(from, to netip.Addr, mark []byte) (byte, []byte) {
		return func(_, _ netip.Addr, mark []byte) (byte, []byte) { return number, mark }
	}
	udp := func(from, to netip.Addr, mark []byte) (byte, []byte) {
		return protoUDP, testlab.UDP(from, to, port7, port7, mark)
	}
	with := func(name string, stopped bool, options func(to *end) []byte) protocol {
		return protocol{name, routed, stopped, func(from speaker, to *end, mark []byte) []byte {
			packet := testlab.IPv4(from.ipv4, to.ipv4, protoUDP, 0, testlab.UDP(from.ipv4, to.ipv4, port7, port7, mark))
			return from.frameTo(to, testlab.IPv4Options(packet, options(to)))
		}}
	}
	return []protocol{
		of("IPv4 UDP", udp, 0),
		of("IPv4 TCP", func(from, to netip.Addr, mark []byte) (byte, []byte) {
			return protoTCP, testlab.TCP(from, to, port7, port7, mark)
		}, 0),
		of("ICMP", func(from, to netip.Addr, mark []byte) (byte, []byte) {
			return protoICMP, testlab.EchoRequest(from, to, mark)
		}, 0),
		of("IPv4 raw", raw(protoExperiment), 0), of("GRE", raw(protoGRE), 0),
		of("IPv4 in IPv4", func(from, to netip.Addr, mark []byte) (byte, []byte) {
			return protoIPv4, testlab.IPv4(to, from, protoUDP, 0, testlab.UDP(to, from, port7, port7, mark))
		}, 0),
		of("IPv4 first fragment", udp, firstOfFragments), of("IPv4 later fragment", raw(protoTCP), laterFragment),
		of("IPv4 fragment without ports", raw(protoTCP), firstOfFragments),
		with("IPv4 options", false, func(*end) []byte { return []byte{1, 1, 1, 0} }),
		// By default Linux does not forward packets with a source route.
		with("IPv4 source route", true, func(to *end) []byte { return append([]byte{0x83, 7, 4}, append(to.elsewhere4(), 0)...) }),
	}
}

func routed6() []protocol {
	of := func(name string, payload func(from, to netip.Addr, mark []byte) (byte, []byte), before ...func(to *end) (byte, []byte)) protocol {
		return protocol{name, routed, false, func(from speaker, to *end, mark []byte) []byte {
			next, text := payload(from.ipv6, to.ipv6, mark)
			for _, header := range before {
				own, rest := header(to)
				text, next = append(append([]byte{next}, rest...), text...), own
			}
			return from.frameTo(to, testlab.IPv6(from.ipv6, to.ipv6, next, 64, text))
		}}
	}
	raw := func(number byte) func(from, to netip.Addr, mark []byte) (byte, []byte) {
		return func(_, _ netip.Addr, mark []byte) (byte, []byte) { return number, mark }
	}
	udp := func(from, to netip.Addr, mark []byte) (byte, []byte) {
		return protoUDP, testlab.UDP(from, to, port7, port7, mark)
	}
	// A routing header with one segment left, the address of another tenant.
	routing := func(kind byte) func(to *end) (byte, []byte) {
		return func(to *end) (byte, []byte) {
			return protoRouting, append([]byte{2, kind, 1, 0, 0, 0, 0}, to.elsewhere6()...)
		}
	}
	fragment := func(field uint16) func(*end) (byte, []byte) {
		return func(*end) (byte, []byte) {
			return protoFragment, append(binary.BigEndian.AppendUint16([]byte{0}, field), 0, 0, 0, 9)
		}
	}
	padded := func(number byte) func(*end) (byte, []byte) {
		return func(*end) (byte, []byte) { return number, []byte{0, 1, 4, 0, 0, 0, 0} }
	}
	return []protocol{
		of("IPv6 UDP", udp),
		of("IPv6 TCP", func(from, to netip.Addr, mark []byte) (byte, []byte) {
			return protoTCP, testlab.TCP(from, to, port7, port7, mark)
		}),
		of("ICMPv6", func(from, to netip.Addr, mark []byte) (byte, []byte) {
			return protoICMPv6, testlab.EchoRequest(from, to, mark)
		}),
		of("IPv6 raw", raw(protoExperiment)),
		of("IPv6 first fragment", udp, fragment(1)), of("IPv6 later fragment", raw(protoTCP), fragment(0x80)),
		of("IPv6 fragment without ports", raw(protoTCP), padded(protoOptions), fragment(1)),
		of("IPv6 routing header 0", udp, routing(0)), of("IPv6 segment routing", udp, routing(4)),
		of("IPv6 hop-by-hop options", udp, padded(0)), of("IPv6 destination options", udp, padded(protoOptions)),
	}
}

// frameTo returns a frame with the packet for the speaker's next hop.
func (s speaker) frameTo(_ *end, packet []byte) []byte {
	testlab.MarkClass(packet, cellDSCP, 0)
	kind := uint16(testlab.EtherIPv4)
	if packet[0]>>4 == 6 {
		kind = testlab.EtherIPv6
	}
	return testlab.Ether(s.next, s.mac, kind, packet)
}

func (s speaker) udp4(to *end, mark []byte) []byte {
	return s.frameTo(to, testlab.IPv4(s.ipv4, to.ipv4, protoUDP, 0, testlab.UDP(s.ipv4, to.ipv4, port7, port7, mark)))
}

func (s speaker) udp6(to *end, mark []byte) []byte {
	return s.frameTo(to, testlab.IPv6(s.ipv6, to.ipv6, protoUDP, 64, testlab.UDP(s.ipv6, to.ipv6, port7, port7, mark)))
}

func (s speaker) group(mac attachment.MAC, group netip.Addr, mark []byte) []byte {
	made := &end{ipv4: group, ipv6: group}
	framed := s.udp4
	if group.Is6() {
		framed = s.udp6
	}
	frame := framed(made, mark)
	copy(frame, mac[:])
	return frame
}

func (s speaker) arp(operation uint16, to *end, mark []byte) []byte {
	message := testlab.ARP(operation, s.mac, s.ipv4, attachment.MAC{}, to.ipv4)
	return testlab.Ether(testlab.Broadcast, s.mac, testlab.EtherARP, append(message, mark...))
}

// discovery returns a neighbour discovery message with the mark in an unknown option.
func (s speaker) discovery(kind byte, target netip.Addr, option byte, mark []byte) []byte {
	message := testlab.Discovery(s.ipv6, mark6, kind, 0, target, option, s.mac, append([]byte{253, 2}, append(mark, make([]byte, 6)...)...)...)
	packet := testlab.IPv6(s.ipv6, mark6, protoICMPv6, 255, message)
	testlab.MarkClass(packet, cellDSCP, 0)
	return testlab.Ether(groupMAC6, s.mac, testlab.EtherIPv6, packet)
}
