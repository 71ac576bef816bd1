package openvswitch

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"railwright/node/internal/plan"
)

// The flows of attachments and tenants as OpenFlow 1.4 messages. Flows that are programmed once for a bridge, such as the
// answers of the gateway, use more of the protocol and are left to ovs-ofctl.
const (
	typeFlowMod    = 14
	modAdd         = 0
	modDelete      = 4 // strict
	flowModBytes   = 40
	matchBytes     = 4
	instructGoto   = 1
	instructApply  = 4
	instructMeter  = 6
	actionOutput   = 0
	actionDecTTL   = 24
	actionSetField = 25
	portLocal      = 0xfffffffe
	portIngress    = 0xfffffff8
)

// field is a field of a match or of set_field: its class and number, and its size in bytes. The order of the list is
// that of a match, in which what a field requires stands before it.
type field struct {
	class  uint16
	number uint8
	bytes  int
}

var fieldOrder = []string{
	"in_port", "dl_dst", "dl_src", "vlan_tci", "eth_type", "ip_dscp", "nw_proto", "nw_ttl", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst",
	"tp_dst", "icmp_type", "icmp_code", "icmpv6_type", "icmpv6_code", "arp_op", "arp_spa", "arp_tpa", "arp_sha", "nd_sll",
	"reg0", "reg1", "reg2",
}

var fields = map[string]field{
	"in_port": {0x8000, 0, 4}, "dl_dst": {0x8000, 3, 6}, "dl_src": {0x8000, 4, 6}, "vlan_tci": {0, 4, 2}, "eth_type": {0x8000, 5, 2},
	"ip_dscp": {0x8000, 8, 1}, "nw_proto": {0x8000, 10, 1}, "nw_ttl": {1, 29, 1}, "nw_src": {0x8000, 11, 4}, "nw_dst": {0x8000, 12, 4},
	"ipv6_src": {0x8000, 26, 16}, "ipv6_dst": {0x8000, 27, 16}, "tp_dst": {0x8000, 16, 2}, "icmp_type": {0x8000, 19, 1},
	"icmp_code": {0x8000, 20, 1}, "icmpv6_type": {0x8000, 29, 1}, "icmpv6_code": {0x8000, 30, 1}, "arp_op": {0x8000, 21, 2},
	"arp_spa": {0x8000, 22, 4}, "arp_tpa": {0x8000, 23, 4}, "arp_sha": {0x8000, 24, 6}, "nd_sll": {0x8000, 32, 6},
	"reg0": {1, 0, 4}, "reg1": {1, 1, 4}, "reg2": {1, 2, 4},
}

// setNames are set_field's other names of fields.
var setNames = map[string]string{"eth_src": "dl_src", "eth_dst": "dl_dst"}

// protocols are the words of a match that stand for an Ethernet type and a protocol; 0 means any protocol.
var protocols = map[string][2]string{
	"arp": {"0x0806", ""}, "ip": {"0x0800", ""}, "ipv6": {"0x86dd", ""}, "icmp": {"0x0800", "1"}, "icmp6": {"0x86dd", "58"},
}

// encodeFlow returns the body of a FLOW_MOD. It fails for a flow that it does not know.
func encodeFlow(command byte, flow plan.Flow) ([]byte, error) {
	match, err := encodeMatch(flow.Match)
	if err != nil {
		return nil, err
	}
	body := make([]byte, flowModBytes, flowModBytes+len(match)+64)
	body[16], body[17] = flow.Table, command
	binary.BigEndian.PutUint16(body[22:], flow.Priority)
	for _, at := range []int{24, 28, 32} { // no buffer, any output port, any group
		binary.BigEndian.PutUint32(body[at:], any32)
	}
	if command == modDelete {
		return append(body, match...), nil
	}
	binary.BigEndian.PutUint64(body, flow.Cookie)
	instructions, err := encodeActions(flow.Actions)
	return append(append(body, match...), instructions...), err
}

func encodeMatch(text string) ([]byte, error) {
	values := map[string]string{}
	for term := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(term, "=")
		if kinds, known := protocols[term]; known {
			values["eth_type"] = kinds[0]
			if kinds[1] != "" {
				values["nw_proto"] = kinds[1]
			}
		} else if term != "" {
			values[name] = value
		}
	}
	if values["nw_proto"] == "58" {
		for _, name := range []string{"type", "code"} {
			if value, found := values["icmp_"+name]; found {
				values["icmpv6_"+name] = value
				delete(values, "icmp_"+name)
			}
		}
	}
	match := make([]byte, matchBytes)
	match[1] = 1 // OXM
	for _, name := range fieldOrder {
		value, found := values[name]
		if !found {
			continue
		}
		delete(values, name)
		encoded, err := encodeField(name, value)
		if err != nil {
			return nil, err
		}
		match = append(match, encoded...)
	}
	if len(values) > 0 {
		return nil, fmt.Errorf("match %q has a field that is not encoded here", text)
	}
	binary.BigEndian.PutUint16(match[2:], uint16(len(match)))
	return pad(match), nil
}

// encodeField returns a field with its value, and its mask if it has one.
func encodeField(name, text string) ([]byte, error) {
	known, found := fields[name]
	if !found {
		return nil, fmt.Errorf("field %q is not encoded here", name)
	}
	value, mask, err := encodeValue(text, known.bytes)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", name, text, err)
	}
	encoded := binary.BigEndian.AppendUint16(nil, known.class)
	masked := byte(0)
	if mask != nil {
		masked = 1
	}
	encoded = append(encoded, known.number<<1|masked, byte(len(value)+len(mask)))
	return slices.Concat(encoded, value, mask), nil
}

// encodeValue encodes a MAC or IP address, a prefix, or an address or a number with or without a mask.
func encodeValue(text string, bytes int) (value, mask []byte, err error) {
	if text == "LOCAL" {
		return binary.BigEndian.AppendUint32(nil, portLocal), nil, nil
	}
	if hardware, err := net.ParseMAC(text); err == nil && bytes == len(hardware) {
		return hardware, nil, nil
	}
	if address, err := netip.ParseAddr(text); err == nil && bytes == address.BitLen()/8 {
		return address.AsSlice(), nil, nil
	}
	if prefix, err := netip.ParsePrefix(text); err == nil && bytes == prefix.Addr().BitLen()/8 {
		return prefix.Addr().AsSlice(), net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()), nil
	}
	number, ones, masked := strings.Cut(text, "/")
	address, wrongAddress := netip.ParseAddr(number)
	bits, wrongBits := netip.ParseAddr(ones)
	if wrongAddress == nil && wrongBits == nil && bytes == address.BitLen()/8 && bytes == bits.BitLen()/8 {
		return address.AsSlice(), bits.AsSlice(), nil
	}
	value, err = encodeNumber(number, bytes)
	if err == nil && masked {
		mask, err = encodeNumber(ones, bytes)
	}
	return value, mask, err
}

func encodeNumber(text string, bytes int) ([]byte, error) {
	number, err := strconv.ParseUint(text, 0, min(bytes, 8)*8)
	if err != nil || bytes > 8 {
		return nil, fmt.Errorf("must be a number of %d bytes", bytes)
	}
	return binary.BigEndian.AppendUint64(nil, number)[8-bytes:], nil
}

// encodeActions returns the instructions of a flow.
func encodeActions(text string) ([]byte, error) {
	var meter, actions, next []byte
	for term := range strings.SplitSeq(text, ",") {
		verb, rest, _ := strings.Cut(term, ":")
		switch verb {
		case drop:
		case "meter", "goto_table":
			number, err := strconv.ParseUint(rest, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", term, err)
			}
			if verb == "meter" {
				meter = binary.BigEndian.AppendUint32([]byte{0, instructMeter, 0, 8}, uint32(number))
			} else {
				next = []byte{0, instructGoto, 0, 8, byte(number), 0, 0, 0}
			}
		default:
			action, err := encodeAction(verb, rest)
			if err != nil {
				return nil, err
			}
			actions = append(actions, action...)
		}
	}
	if len(actions) > 0 {
		length := byte(8 + len(actions))
		actions = append([]byte{0, instructApply, 0, length, 0, 0, 0, 0}, actions...)
	}
	return slices.Concat(meter, actions, next), nil
}

const drop = "drop"

// encodeAction returns an action. The actions of a flow are fewer than 256 bytes.
func encodeAction(verb, rest string) ([]byte, error) {
	var port uint64
	switch verb {
	case "dec_ttl":
		return []byte{0, actionDecTTL, 0, 8, 0, 0, 0, 0}, nil
	case "set_field":
		value, name, _ := strings.Cut(rest, "->")
		if other, found := setNames[name]; found {
			name = other
		}
		encoded, err := encodeField(name, value)
		if err != nil {
			return nil, err
		}
		action := pad(append([]byte{0, actionSetField, 0, 0}, encoded...))
		action[3] = byte(len(action))
		return action, nil
	case "LOCAL":
		port = portLocal
	case "IN_PORT":
		port = portIngress
	case "output":
		var err error
		if port, err = strconv.ParseUint(rest, 10, 32); err != nil {
			return nil, fmt.Errorf("output:%s: %w", rest, err)
		}
	default:
		return nil, fmt.Errorf("action %q is not encoded here", verb)
	}
	action := binary.BigEndian.AppendUint32([]byte{0, actionOutput, 0, 16}, uint32(port))
	return append(action, make([]byte, 8)...), nil
}

// pad appends zeros up to a multiple of eight bytes.
func pad(bytes []byte) []byte {
	return append(bytes, make([]byte, (8-len(bytes)%8)%8)...)
}
