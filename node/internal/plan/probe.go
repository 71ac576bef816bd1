package plan

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"railwright/node/internal/attachment"
)

// probeHops is the hop limit of a probe: the leaf takes one hop to return it here, and if it forwards the probe
// elsewhere, the probe ends there.
const probeHops = 2

// discard is the port of a service that answers nothing (RFC 863). No probe reaches it: see Probe.
const discard = 9

// Probe returns a frame for the leaf with a pod's address as its destination. A leaf that forwards to the pod returns
// it to this node. The flow that admits the address from the uplink counts it, and the next table drops it, because its
// source, the host's address on the rail or on an unnumbered rail the pod's own, must not come from the uplink.
func Probe(facts Facts, address netip.Addr) []byte {
	from := address
	for _, host := range facts.HostAddresses {
		if host = host.Unmap().WithZone(""); host.BitLen() == address.BitLen() && host.IsGlobalUnicast() {
			from = host
			break
		}
	}
	datagram := []byte{0, discard, 0, discard, 0, 8, 0, 0}
	kind, packet := uint16(0x0800), []byte{0x45, 0, 0, 28, 0, 0, 0x40, 0, probeHops, 17, 0, 0}
	if address.Is6() {
		kind, packet = 0x86dd, []byte{0x60, 0, 0, 0, 0, 8, 17, probeHops}
	}
	packet = append(append(packet, from.AsSlice()...), address.AsSlice()...)
	if address.Is4() {
		binary.BigEndian.PutUint16(packet[10:], internetSum(packet)) // a UDP checksum of 0 is valid over IPv4
	} else {
		pseudo := append(packet[8:40:40], 0, 0, 0, 8, 0, 0, 0, 17)
		binary.BigEndian.PutUint16(datagram[6:], internetSum(append(pseudo, datagram...)))
	}
	return append(ether(facts.LeafMAC, facts.BridgeMAC, kind), append(packet, datagram...)...)
}

func ether(to, from attachment.MAC, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to[:]...), from[:]...), kind)
}

// internetSum returns the checksum of an even number of bytes (RFC 1071).
func internetSum(over []byte) uint16 {
	var sum uint32
	for at := 0; at < len(over); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(over[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// ArrivalFlows returns the table and cookie of the flows that admit an attachment's addresses from the uplink.
func ArrivalFlows(number uint16) (table uint8, cookie uint64) {
	return tableClassify, Cookie(number, Pass)
}

// DestinationField returns the field in a flow's match that selects packets for the address.
func DestinationField(address netip.Addr) string {
	_, field, _ := strings.Cut(destination(single(address)), ",")
	return field
}
