package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Registers, in the order that they are written. Register 3 is a place to put an address down while two change places.
const (
	registerSource      = 0
	registerDestination = 1
	registerByUplink    = 2
)

const (
	priorityOwnAddress = 400
	priorityRouter     = 300
	// priorityMember is raised by the prefix's length: the narrowest that holds an address decides.
	priorityMember = 100
	priorityPair   = 100
	priorityRate   = 100
)

// membership names the tenants of a packet that came by the uplink (its source) and of every packet (its destination).
// Whose address is in no list goes nowhere.
func (f *flowSet) membership() {
	for _, member := range f.members() {
		number := f.tenants.Numbers[member.Tenant]
		priority := priorityMember + uint16(member.Prefix.Bits())
		f.add(tableSource, priority, source(member.Prefix), joinTerms(setRegister(registerSource, number),
			setRegister(registerByUplink, 1), goTo(tableDestination)), Cookie(0, Pass))
		f.add(tableDestination, priority, destination(member.Prefix), joinTerms(setRegister(registerDestination, number),
			goTo(tablePairs)), Cookie(0, Pass))
	}
	f.refuseDiscovery()
	f.errorsOfRouters()
}

// members with a tenant that has a number here, each prefix once. A prefix that two tenants have is nobody's.
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

// errorsOfRouters that path MTU discovery lives by: without them a pod whose packets are too long for a link further on
// sends them again and again, and nobody tells it. They are for a pod here (the table before has seen to that), whatever
// its tenant.
func (f *flowSet) errorsOfRouters() {
	for _, prefix := range f.rail.Routers {
		message := "icmp,icmp_type=3,icmp_code=4"
		if prefix.Addr().Is6() {
			message = "icmp6,icmp_type=2,icmp_code=0"
		}
		f.add(tableSource, priorityRouter, joinTerms(message, source(prefix)),
			joinTerms(setRegister(registerByUplink, 1), goTo(tableDeliver)), Cookie(0, Pass))
	}
}

// refuseOwnAddress: what comes from outside and says that it was sent by a pod here was not.
func (f *flowSet) refuseOwnAddress(endpoint local, address netip.Addr) {
	f.add(tableSource, priorityOwnAddress, source(single(address)), drop, Cookie(endpoint.Number, DropSpoofed))
}

// refuseDiscovery between pods: it is for one link, and here each pod has a link of its own. With KeepTTL receivers
// would even believe it, for its hop limit would still be 255.
func (f *flowSet) refuseDiscovery() {
	for kind := 133; kind <= 137; kind++ {
		f.add(tableDestination, priorityOwnAddress, fmt.Sprintf("icmp6,icmp_type=%d", kind), drop,
			Cookie(0, DropNotForUs))
	}
}

// pairs of tenants that may speak: each with itself, and those that are peered.
func (f *flowSet) pairs() {
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

// boundSent is for what may go and nothing else. A meter that a drop comes after would be all that the datapath has to
// do with the packet: as the last action of a tc filter it hands the packet on to ovs-vswitchd, each one, and the filter
// tells of every packet of the meter as its own.
func (f *flowSet) boundSent(endpoint local) {
	if endpoint.MaxRate != 0 {
		f.add(tableRate, priorityRate, inPort(endpoint.port), goTo(tableDeliver), Cookie(endpoint.Number, Pass))
		f.bound(endpoint, sends)
	}
}
