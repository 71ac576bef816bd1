package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railwright/node/internal/attachment"
)

// Terms of ovs-ofctl's syntax. Values in them are numbers, addresses or MACs only: %d, or %v of netip and
// attachment.MAC.
const (
	drop     = "drop"
	fromHost = "in_port=LOCAL"
	toHost   = "LOCAL"
	ingress  = "IN_PORT"
	// untagged matches packets without a VLAN header: OVS's TCI is 0 for them, and has bit 0x1000 set for others.
	untagged = "vlan_tci=0x0000/0x1fff"
)

func inPort(port uint32) string { return fmt.Sprintf("in_port=%d", port) }
func output(port uint32) string { return fmt.Sprintf("output:%d", port) }
func goTo(table uint8) string   { return fmt.Sprintf("goto_table:%d", table) }

// joinTerms joins the terms that are not empty.
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

// source and destination match an address or a whole prefix.
func source(prefix netip.Prefix) string      { return matchAddress(prefix, "src") }
func destination(prefix netip.Prefix) string { return matchAddress(prefix, "dst") }

func matchAddress(prefix netip.Prefix, end string) string {
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
