package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Registers in the order that they are written. Register 3 is scratch space for swapping two addresses.
const (
	registerSource      = 0
	registerDestination = 1
	registerByUplink    = 2
)

const (
	priorityOwnAddress = 400
	priorityRouter     = 300
	// priorityMember is raised by the prefix length, so that the longest prefix wins.
	priorityMember = 100
	priorityPair   = 100
	priorityRate   = 100
)

// member returns the flows that set the tenant of the source of packets from the uplink and of the destination of every
// packet. Packets with an address in no list are dropped.
func (f *flowSet) member(key memberKey) []Flow {
	priority := priorityMember + uint16(key.prefix.Bits())
	f.add(tableSource, priority, source(key.prefix), joinTerms(setRegister(registerSource, key.number),
		setRegister(registerByUplink, 1), goTo(tableDestination)), Cookie(0, Admit))
	f.add(tableDestination, priority, destination(key.prefix), joinTerms(setRegister(registerDestination, key.number),
		goTo(tablePairs)), Cookie(0, Admit))
	return f.all
}

// members returns each prefix once, with a tenant that has a number here. A prefix claimed by two tenants belongs to
// neither.
func (f *flowSet) members() []Member {
	tenantOf := map[netip.Prefix]string{}
	disputed := map[netip.Prefix]bool{}
	for _, member := range f.tenants.Members {
		if !member.Prefix.IsValid() || member.Prefix.Addr().Is4In6() {
			continue
		}
		prefix := member.Prefix.Masked()
		if tenant, ok := tenantOf[prefix]; ok && tenant != member.Tenant {
			disputed[prefix] = true
		}
		tenantOf[prefix] = member.Tenant
	}
	var members []Member
	for prefix, tenant := range tenantOf {
		if f.tenants.Numbers[tenant] != 0 && !disputed[prefix] {
			members = append(members, Member{prefix, tenant})
		}
	}
	return members
}

// admitRouterErrors admits the routers' errors that path MTU discovery needs. Without them a pod whose packets are too
// long for a later link sends them again and again. The classifying table already checked that they are for a local
// pod; its tenant does not matter.
func (f *flowSet) admitRouterErrors() {
	for _, prefix := range f.rail.Routers {
		message := "icmp,icmp_type=3,icmp_code=4"
		if prefix.Addr().Is6() {
			message = "icmp6,icmp_type=2,icmp_code=0"
		}
		f.add(tableSource, priorityRouter, joinTerms(message, source(prefix)),
			joinTerms(setRegister(registerByUplink, 1), goTo(tableDeliver)), Cookie(0, Pass))
	}
}

// refuseOwnAddress drops packets from outside with a local pod's source address: they are spoofed.
func (f *flowSet) refuseOwnAddress(endpoint endpoint, address netip.Addr) {
	f.add(tableSource, priorityOwnAddress, source(single(address)), drop, Cookie(endpoint.Number, DropSpoofed))
}

// refuseDiscovery drops neighbour discovery between pods: it is valid on a single link, and each pod has a link of its
// own. With KeepTTL receivers would even accept it, since its hop limit would still be 255.
func (f *flowSet) refuseDiscovery() {
	for kind := 133; kind <= 137; kind++ {
		f.add(tableDestination, priorityOwnAddress, fmt.Sprintf("icmp6,icmp_type=%d", kind), drop,
			Cookie(0, DropNotForUs))
	}
}

// addPairs adds the pairs of tenants that may communicate: each tenant with itself, and peered tenants.
func (f *flowSet) addPairs() {
	numbers := f.tenants.Numbers
	open := map[[2]uint32]bool{}
	for _, number := range numbers {
		open[[2]uint32{number, number}] = true
	}
	for _, pair := range f.tenants.Pairs {
		a, other := numbers[pair[0]], numbers[pair[1]]
		open[[2]uint32{a, other}] = true
		open[[2]uint32{other, a}] = true
	}
	for _, pair := range slices.Collect(maps.Keys(open)) {
		if pair[0] != 0 && pair[1] != 0 {
			f.add(tablePairs, priorityPair, fmt.Sprintf("reg%d=%d,reg%d=%d", registerSource, pair[0],
				registerDestination, pair[1]), goTo(tableRate), Cookie(0, Pass))
		}
	}
	f.add(tableRate, 0, "", goTo(tableDeliver), Cookie(0, Pass))
}

// limitSent meters allowed traffic only. If a drop followed the meter, the meter would be the last action of the
// datapath flow: a tc filter then hands each packet to ovs-vswitchd and counts all packets of the meter as its own.
func (f *flowSet) limitSent(endpoint endpoint) {
	if endpoint.MaxRate != 0 {
		f.add(tableRate, priorityRate, inPort(endpoint.port), goTo(tableDeliver), Cookie(endpoint.Number, Pass))
		f.limitLast(endpoint, sends)
	}
}
