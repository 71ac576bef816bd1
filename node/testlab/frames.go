package testlab

import (
	"encoding/binary"
	"net/netip"

	"railwright/node/internal/attachment"
)

// EtherTypes of the frames that tests send.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherIPv6 = 0x86dd
	EtherVLAN = 0x8100
	EtherQinQ = 0x88a8
)

// Broadcast is the Ethernet broadcast address.
var Broadcast = attachment.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Ether returns an Ethernet frame with the payload.
func Ether(destination, source attachment.MAC, kind uint16, payload []byte) []byte {
	frame := append(append([]byte{}, destination[:]...), source[:]...)
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

// Tagged returns a copy of the frame with an 802.1Q tag inserted.
func Tagged(tci uint16, frame []byte) []byte {
	tagged := binary.BigEndian.AppendUint16(append([]byte{}, frame[:12]...), EtherVLAN)
	return append(binary.BigEndian.AppendUint16(tagged, tci), frame[12:]...)
}

// TaggedAs is like Tagged with another EtherType for the tag, such as EtherQinQ for the outer of two tags.
func TaggedAs(kind, tci uint16, frame []byte) []byte {
	tagged := Tagged(tci, frame)
	binary.BigEndian.PutUint16(tagged[12:], kind)
	return tagged
}

// ARP returns an ARP message. Operation 1 is a request, 2 a reply.
func ARP(operation uint16, sender attachment.MAC, senderIP netip.Addr, target attachment.MAC,
	targetIP netip.Addr) []byte {
	message := []byte{0, 1, 8, 0, 6, 4}
	message = binary.BigEndian.AppendUint16(message, operation)
	message = append(append(message, sender[:]...), senderIP.AsSlice()...)
	return append(append(message, target[:]...), targetIP.AsSlice()...)
}

// IPv4 returns an IPv4 packet. fragment is the 16-bit field of flags and fragment offset.
func IPv4(source, destination netip.Addr, protocol byte, fragment uint16, payload []byte) []byte {
	header := []byte{0x45, 0}
	header = binary.BigEndian.AppendUint16(header, uint16(20+len(payload)))
	header = binary.BigEndian.AppendUint16(header, 7)
	header = binary.BigEndian.AppendUint16(header, fragment)
	header = append(header, 64, protocol, 0, 0)
	header = append(append(header, source.AsSlice()...), destination.AsSlice()...)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return append(header, payload...)
}

// MarkClass sets the DSCP and ECN of an IPv4 or IPv6 packet in place.
func MarkClass(packet []byte, dscp, ecn byte) {
	class := dscp<<2 | ecn
	if packet[0]>>4 == 6 {
		packet[0], packet[1] = 0x60|class>>4, class<<4|packet[1]&15
		return
	}
	packet[1] = class
	SumIPv4(packet)
}

// Class returns the DSCP and ECN of an IPv4 or IPv6 packet.
func Class(packet []byte) (dscp, ecn byte) {
	class := packet[1]
	if packet[0]>>4 == 6 {
		class = packet[0]<<4 | packet[1]>>4
	}
	return class >> 2, class & 3
}

// SumIPv4 recomputes the header checksum of an IPv4 packet in place.
func SumIPv4(packet []byte) {
	binary.BigEndian.PutUint16(packet[10:], 0)
	binary.BigEndian.PutUint16(packet[10:], checksum(packet[:4*int(packet[0]&15)]))
}

// IPv4Options returns a copy of the packet, which must have no options, with these options. Their length must be a
// multiple of 4 bytes.
func IPv4Options(packet, options []byte) []byte {
	longer := append(append(append([]byte{}, packet[:20]...), options...), packet[20:]...)
	longer[0] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(longer[2:], uint16(len(longer)))
	SumIPv4(longer)
	return longer
}

// IPv6 returns an IPv6 packet. next is the next-header field.
func IPv6(source, destination netip.Addr, next, hopLimit byte, payload []byte) []byte {
	header := []byte{0x60, 0, 0, 0}
	header = binary.BigEndian.AppendUint16(header, uint16(len(payload)))
	header = append(header, next, hopLimit)
	header = append(append(header, source.AsSlice()...), destination.AsSlice()...)
	return append(header, payload...)
}

// UDP returns a UDP datagram with its checksum, which covers the IP addresses.
func UDP(source, destination netip.Addr, from, to uint16, payload []byte) []byte {
	datagram := binary.BigEndian.AppendUint16(nil, from)
	datagram = binary.BigEndian.AppendUint16(datagram, to)
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(8+len(payload)))
	datagram = append(append(datagram, 0, 0), payload...)
	binary.BigEndian.PutUint16(datagram[6:], checksum(pseudo(source, destination, 17, datagram)))
	return datagram
}

// TCP returns a TCP SYN segment with data.
func TCP(source, destination netip.Addr, from, to uint16, payload []byte) []byte {
	segment := binary.BigEndian.AppendUint16(nil, from)
	segment = binary.BigEndian.AppendUint16(segment, to)
	segment = append(segment, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0)
	segment = append(segment, payload...)
	binary.BigEndian.PutUint16(segment[16:], checksum(pseudo(source, destination, 6, segment)))
	return segment
}

// EchoRequest returns an ICMP or ICMPv6 echo request, depending on the address family.
func EchoRequest(source, destination netip.Addr, payload []byte) []byte {
	kind := byte(8)
	if source.Is6() {
		kind = 128
	}
	return ICMP(source, destination, kind, 0, []byte{0, 7, 0, 1}, payload)
}

// ICMP returns an ICMP or ICMPv6 message, depending on the address family. second is the header's second 32-bit word.
func ICMP(source, destination netip.Addr, kind, code byte, second, payload []byte) []byte {
	message := append(append([]byte{kind, code, 0, 0}, second...), payload...)
	summed := message
	if source.Is6() {
		summed = pseudo(source, destination, 58, message)
	}
	binary.BigEndian.PutUint16(message[2:], checksum(summed))
	return message
}

// Discovery returns an IPv6 neighbour discovery message about a target, with an option that holds a MAC address: type
// 135 is a solicitation (option 1, the sender's address), 136 an advertisement (option 2, the target's). more is
// appended.
func Discovery(source, destination netip.Addr, kind byte, flags uint32, target netip.Addr, option byte,
	mac attachment.MAC, more ...byte) []byte {
	message := []byte{kind, 0, 0, 0}
	message = binary.BigEndian.AppendUint32(message, flags)
	message = append(message, target.AsSlice()...)
	message = append(append(append(message, option, 1), mac[:]...), more...)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo(source, destination, 58, message)))
	return message
}

func pseudo(source, destination netip.Addr, protocol byte, payload []byte) []byte {
	header := append(append([]byte{}, source.AsSlice()...), destination.AsSlice()...)
	header = binary.BigEndian.AppendUint32(header, uint32(len(payload)))
	return append(append(header, 0, 0, 0, protocol), payload...)
}

func checksum(data []byte) uint16 {
	var sum uint32
	for ; len(data) > 1; data = data[2:] {
		sum += uint32(data[0])<<8 | uint32(data[1])
	}
	if len(data) == 1 {
		sum += uint32(data[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
