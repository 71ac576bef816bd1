package testlab

import (
	"encoding/binary"
	"net/netip"

	"railwright/node/internal/attachment"
)

// Kinds of Ethernet frames.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherIPv6 = 0x86dd
	EtherVLAN = 0x8100
)

// Broadcast is the Ethernet address of all.
var Broadcast = attachment.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Ether puts a header before a payload.
func Ether(destination, source attachment.MAC, kind uint16, payload []byte) []byte {
	frame := append(append([]byte{}, destination[:]...), source[:]...)
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

// Tagged puts a VLAN tag into a frame.
func Tagged(tci uint16, frame []byte) []byte {
	tagged := binary.BigEndian.AppendUint16(append([]byte{}, frame[:12]...), EtherVLAN)
	return append(binary.BigEndian.AppendUint16(tagged, tci), frame[12:]...)
}

// ARP of operation 1 (request) or 2 (reply).
func ARP(operation uint16, sender attachment.MAC, senderIP netip.Addr, target attachment.MAC,
	targetIP netip.Addr) []byte {
	message := []byte{0, 1, 8, 0, 6, 4}
	message = binary.BigEndian.AppendUint16(message, operation)
	message = append(append(message, sender[:]...), senderIP.AsSlice()...)
	return append(append(message, target[:]...), targetIP.AsSlice()...)
}

// IPv4 packet; fragment is the field of flags and offset.
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

// IPv6 packet.
func IPv6(source, destination netip.Addr, next, hopLimit byte, payload []byte) []byte {
	header := []byte{0x60, 0, 0, 0}
	header = binary.BigEndian.AppendUint16(header, uint16(len(payload)))
	header = append(header, next, hopLimit)
	header = append(append(header, source.AsSlice()...), destination.AsSlice()...)
	return append(header, payload...)
}

// UDP datagram with its checksum over IPv6's or IPv4's addresses.
func UDP(source, destination netip.Addr, from, to uint16, payload []byte) []byte {
	datagram := binary.BigEndian.AppendUint16(nil, from)
	datagram = binary.BigEndian.AppendUint16(datagram, to)
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(8+len(payload)))
	datagram = append(append(datagram, 0, 0), payload...)
	binary.BigEndian.PutUint16(datagram[6:], checksum(pseudo(source, destination, 17, datagram)))
	return datagram
}

// Discovery is a message of IPv6's neighbour discovery about a target, with one option that holds a MAC address: type
// 135 solicits (option 1, the sender's), 136 advertises (option 2, the target's).
func Discovery(source, destination netip.Addr, kind byte, flags uint32, target netip.Addr, option byte,
	mac attachment.MAC) []byte {
	message := []byte{kind, 0, 0, 0}
	message = binary.BigEndian.AppendUint32(message, flags)
	message = append(message, target.AsSlice()...)
	message = append(append(message, option, 1), mac[:]...)
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
