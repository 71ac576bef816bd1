package plan

import (
	"fmt"
	"net/netip"
)

// Priorities of the guard table.
const (
	priorityOwnARP  = 510
	priorityAnswer  = 500
	priorityCNP     = 410
	priorityData    = 400
	priorityMarking = 350
	priorityHonest  = 300
	prioritySpoofed = 100
)

// guard lets a port send only under its own addresses, even if the pod has root. It also drops, under a separate
// reason, what well-behaved kernels send unasked (multicast listener reports, duplicate address detection, gratuitous
// ARP): operators stop reading a counter of spoofed packets that moves in a healthy cluster.
func (f *flowSet) guard(endpoint endpoint) {
	sender := joinTerms(inPort(endpoint.port), etherSource(endpoint.MAC))
	ignored := Cookie(endpoint.Number, DropNotForUs)
	for _, address := range endpoint.Addresses {
		if address.Is4() {
			f.guardARP(endpoint, sender, address)
		} else if f.facts.AnswersND {
			f.guardND(endpoint, sender, address)
		}
		from := source(single(address))
		data, cookie := joinTerms(f.setSourceTenant(endpoint), goTo(tableDestination)), Cookie(endpoint.Number, Sent)
		if f.tenants.Numbers[endpoint.Tenant] == 0 {
			data, cookie = drop, Cookie(endpoint.Number, DropOtherTenant)
		}
		f.guardMarking(joinTerms(sender, etherDestination(f.facts.BridgeMAC), from), data, cookie)
		f.add(tableGuard, priorityHonest, joinTerms(sender, from), drop, ignored)
	}
	f.add(tableGuard, priorityHonest, joinTerms(sender, "ipv6", "ipv6_src=fe80::/10"), drop, ignored)
	f.add(tableGuard, priorityHonest, joinTerms(sender, "ipv6", "ipv6_src=::"), drop, ignored)
	f.add(tableGuard, prioritySpoofed, inPort(endpoint.port), drop, Cookie(endpoint.Number, DropSpoofed))
}

// roce selects RoCE v2: UDP to its port.
const roce = "nw_proto=17,tp_dst=4791"

// guardMarking admits data with each DSCP that pods may use, so that a pod cannot take another traffic class, and
// congestion notifications with their own: without them RoCE does not slow down, and in the class of data they wait
// behind the queue that they report.
func (f *flowSet) guardMarking(match, data string, cookie uint64) {
	for _, dscp := range f.rail.Marking.CNP {
		f.add(tableGuard, priorityCNP, joinTerms(match, roce, fmt.Sprintf("ip_dscp=%d", dscp)), data, cookie)
	}
	if f.rail.Marking.Policy != RefuseMarking {
		if data != drop {
			data = joinTerms(f.rewriteDSCP(), data)
		}
		f.add(tableGuard, priorityData, match, data, cookie)
		return
	}
	for _, dscp := range f.rail.Marking.Allowed {
		f.add(tableGuard, priorityData, joinTerms(match, fmt.Sprintf("ip_dscp=%d", dscp)), data, cookie)
	}
	number, _, _ := ParseCookie(cookie)
	f.add(tableGuard, priorityMarking, match, drop, Cookie(number, DropMarking))
}

// rewriteDSCP returns the action that rewrites the DSCP, or "" if pods choose it.
func (f *flowSet) rewriteDSCP() string {
	if f.rail.Marking.Policy != RewriteMarking {
		return ""
	}
	return fmt.Sprintf("set_field:%d->ip_dscp", f.rail.Marking.DSCP)
}

func (f *flowSet) setSourceTenant(endpoint endpoint) string {
	return setRegister(registerSource, f.tenants.Numbers[endpoint.Tenant])
}

// guardARP admits ARP requests. The gateway answers for every address but the pod's own, because all traffic is routed:
// pods whose prefix is on-link reach each other without a route, and no pod learns about its neighbours.
func (f *flowSet) guardARP(endpoint endpoint, sender string, address netip.Addr) {
	sender = joinTerms(sender, "arp", fmt.Sprintf("arp_sha=%v", endpoint.MAC))
	f.add(tableGuard, priorityOwnARP, joinTerms(sender, fmt.Sprintf("arp_tpa=%v", address)), drop,
		Cookie(endpoint.Number, DropNotForUs))
	f.add(tableGuard, priorityAnswer, joinTerms(sender, "arp_op=1", fmt.Sprintf("arp_spa=%v", address)),
		goTo(tableAnswer), Cookie(endpoint.Number, Answered))
}

// guardND admits neighbour solicitations from the pod's address or from a link-local one. The link-local address may be
// random and is unknown here, so any is accepted with the right MAC; the answer goes back to the sender only.
func (f *flowSet) guardND(endpoint endpoint, sender string, address netip.Addr) {
	sender = joinTerms(sender, "icmp6,icmp_type=135,icmp_code=0", fmt.Sprintf("nd_sll=%v", endpoint.MAC))
	for _, from := range []string{fmt.Sprintf("ipv6_src=%v", address), "ipv6_src=fe80::/10"} {
		f.add(tableGuard, priorityAnswer, joinTerms(sender, from), joinTerms(toAdvertisement, goTo(tableAnswer)),
			Cookie(endpoint.Number, Answered))
	}
}
