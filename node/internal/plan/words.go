package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railwright/node/internal/attachment"
)

// OVS's words. Whatever goes into them is a number, an address or a MAC: %d, %v of netip and of attachment.MAC.
const (
	drop     = "drop"
	fromHost = "in_port=LOCAL"
	toHost   = "LOCAL"
	back     = "IN_PORT"
	// untagged packets have no VLAN header: without one OVS's TCI is 0, with one bit 0x1000 of it is set.
	untagged = "vlan_tci=0x0000/0x1fff"
)

func inPort(port uint32) string { return fmt.Sprintf("in_port=%d", port) }
func output(port uint32) string { return fmt.Sprintf("output:%d", port) }
func goTo(table uint8) string   { return fmt.Sprintf("goto_table:%d", table) }

// words that are not empty, joined.
func joinTerms(terms ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(terms), func(word string) bool { return word == "" }), ",")
}

func etherSource(mac attachment.MAC) string      { return fmt.Sprintf("dl_src=%v", mac) }
func etherDestination(mac attachment.MAC) string { return fmt.Sprintf("dl_dst=%v", mac) }

func setEther(source, destination attachment.MAC) string {
	return fmt.Sprintf("set_field:%v->eth_src,set_field:%v->eth_dst", source, destination)
}

func setRegister(register int, value uint32) string {
	return fmt.Sprintf("set_field:%d->reg%d", value, register)
}

// source and destination match one address or all of a prefix.
func source(prefix netip.Prefix) string      { return packetsOf(prefix, "src") }
func destination(prefix netip.Prefix) string { return packetsOf(prefix, "dst") }

func packetsOf(prefix netip.Prefix, end string) string {
	protocol, field := "ip", "nw_"
	if prefix.Addr().Is6() {
		protocol, field = "ipv6", "ipv6_"
	}
	if prefix.IsSingleIP() {
		return fmt.Sprintf("%s,%s%s=%v", protocol, field, end, prefix.Addr())
	}
	return fmt.Sprintf("%s,%s%s=%v", protocol, field, end, prefix)
}

func single(address netip.Addr) netip.Prefix {
	return netip.PrefixFrom(address, address.BitLen())
}
