package plan

import (
	"fmt"
	"net/netip"
)

// Priorities of the guard.
const (
	priorityOwnName = 510
	priorityAnswer  = 500
	priorityData    = 400
	priorityMarking = 350
	priorityHonest  = 300
	prioritySpoofed = 100
)

// guard lets a port send only as itself, whatever the pod's own root does. What honest kernels say on their own
// (multicast listener reports, duplicate address detection, gratuitous ARP) is dropped too, under a name of its own: a
// counter of spoofed packets that moves in a healthy cluster is one that nobody looks at.
func (f *flowSet) guard(endpoint local) {
	sender := joinTerms(inPort(endpoint.port), etherSource(endpoint.MAC))
	ignored := Cookie(endpoint.Number, DropNotForUs)
	for _, address := range endpoint.Addresses {
		if address.Is4() {
			f.guardARP(endpoint, sender, address)
		} else if f.facts.AnswersND {
			f.guardND(endpoint, sender, address)
		}
		from := source(single(address))
		data, cookie := joinTerms(f.marked(), f.sentBy(endpoint), goTo(tableDestination)), Cookie(endpoint.Number, Sent)
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

// guardMarking lets out data with each DSCP that pods may use; the class of another traffic is not theirs to take.
func (f *flowSet) guardMarking(match, data string, cookie uint64) {
	if f.rail.Marking.Policy != RefuseMarking {
		f.add(tableGuard, priorityData, match, data, cookie)
		return
	}
	for _, dscp := range f.rail.Marking.Allowed {
		f.add(tableGuard, priorityData, joinTerms(match, fmt.Sprintf("ip_dscp=%d", dscp)), data, cookie)
	}
	number, _, _ := ParseCookie(cookie)
	f.add(tableGuard, priorityMarking, match, drop, Cookie(number, DropMarking))
}

// marked anew, where pods are not to choose.
func (f *flowSet) marked() string {
	if f.rail.Marking.Policy != RewriteMarking {
		return ""
	}
	return fmt.Sprintf("set_field:%d->ip_dscp", f.rail.Marking.DSCP)
}

func (f *flowSet) sentBy(endpoint local) string {
	return setRegister(registerSource, f.tenants.Numbers[endpoint.Tenant])
}

// guardARP: all is routed, so the gateway answers for every address but the pod's own. Pods whose prefix is on-link
// reach each other without a route of their own, and nobody learns who else is there.
func (f *flowSet) guardARP(endpoint local, sender string, address netip.Addr) {
	sender = joinTerms(sender, "arp", fmt.Sprintf("arp_sha=%v", endpoint.MAC))
	f.add(tableGuard, priorityOwnName, joinTerms(sender, fmt.Sprintf("arp_tpa=%v", address)), drop,
		Cookie(endpoint.Number, DropNotForUs))
	f.add(tableGuard, priorityAnswer, joinTerms(sender, "arp_op=1", fmt.Sprintf("arp_spa=%v", address)),
		goTo(tableAnswer), Cookie(endpoint.Number, Answered))
}

// guardND: kernels ask with the address that the data has, or with their link-local one. That one is not ours to know
// (it may be random), so any will do beside the right MAC; the answer goes nowhere but back.
func (f *flowSet) guardND(endpoint local, sender string, address netip.Addr) {
	sender = joinTerms(sender, "icmp6,icmp_type=135,icmp_code=0", fmt.Sprintf("nd_sll=%v", endpoint.MAC))
	for _, from := range []string{fmt.Sprintf("ipv6_src=%v", address), "ipv6_src=fe80::/10"} {
		f.add(tableGuard, priorityAnswer, joinTerms(sender, from), joinTerms(toAdvertisement, goTo(tableAnswer)),
			Cookie(endpoint.Number, Answered))
	}
}
