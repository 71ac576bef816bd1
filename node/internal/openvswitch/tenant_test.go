package openvswitch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// datagrams is the number sent in each direction.
const datagrams = 1000

// TestNoPacketPassesBetweenTenants has pods of the tenants a and b on this node. The pod beyond the leaf is first of
// tenant c, then of a.
func TestNoPacketPassesBetweenTenants(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "b")
	rail.member("a", first.Addresses...)
	rail.member("b", second.Addresses...)
	rail.member("c", remoteIPv4, remoteIPv6)
	rail.program(t)
	far := &labPod{namespace: rail.remote}
	far.Addresses = []netip.Addr{remoteIPv4, remoteIPv6}

	rail.expect(t, 0, direction{first, second}, direction{second, first}, direction{first, far}, direction{far, first}, direction{far, second})
	if counted := sumDropped(rail.readCounters(t), plan.DropOtherTenant); counted != 10*datagrams {
		t.Errorf("%d packets counted as other_tenant, want %d", counted, 10*datagrams)
	}

	// The same packets arrive once the tenants are peered, so the tenants were the reason for the drop.
	rail.tenants.Pairs = [][2]string{{"b", "a"}, {"a", "c"}}
	rail.program(t)
	rail.expect(t, datagrams, direction{first, second}, direction{second, first}, direction{first, far}, direction{far, first})
	// Peering is not transitive.
	rail.expect(t, 0, direction{far, second}, direction{second, far})

	// An address without a tenant neither sends nor receives.
	rail.tenants.Members = slices.DeleteFunc(rail.tenants.Members, func(member plan.Member) bool {
		return member.Tenant == "c"
	})
	rail.program(t)
	rail.expect(t, 0, direction{first, far}, direction{far, first})
	counters := rail.readCounters(t)
	for _, reason := range []plan.Reason{plan.DropUnknownDestination, plan.DropUnknownSource} {
		if counted := sumDropped(counters, reason); counted < 2*datagrams {
			t.Errorf("%d packets counted as %v", counted, reason)
		}
	}
}

type direction struct{ from, to *labPod }

// expect checks that want of the datagrams arrive in each direction and family.
func (l *lab) expect(t *testing.T, want int, directions ...direction) {
	t.Helper()
	for _, d := range directions {
		for _, ipv6 := range []bool{false, true} {
			if arrived := l.flood(t, d.from, d.to, ipv6, want); arrived != want {
				t.Errorf("from %v to %v, IPv6 %v: %d of %d datagrams arrived, want %d", d.from.Addresses,
					d.to.Addresses, ipv6, arrived, datagrams, want)
			}
		}
	}
}

// flood sends datagrams as a kernel would and returns how many arrived. It waits for those that should.
func (l *lab) flood(t *testing.T, from, to *labPod, ipv6 bool, want int) int {
	t.Helper()
	there := testlab.OpenWire(t, to.namespace, "eth0")
	here := testlab.OpenWire(t, from.namespace, "eth0")
	worked := func() { askGateway(t, here, from) }
	nextHop, sourceMAC := gateway, from.MAC
	if from.namespace == l.remote {
		nextHop, sourceMAC = macOf(t, l.leaf, "swp2"), macOf(t, l.remote, "eth0")
		leaf := testlab.OpenWire(t, l.leaf, "swp1")
		leafMAC := macOf(t, l.leaf, "swp1")
		worked = func() { askFor(t, leaf, leafMAC, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.0")) }
	}
	source, destination := from.Addresses[0], to.Addresses[0]
	kind, packet := uint16(testlab.EtherIPv4), func(datagram []byte) []byte {
		return testlab.IPv4(source, destination, 17, 0, datagram)
	}
	if ipv6 {
		source, destination = from.Addresses[1], to.Addresses[1]
		kind, packet = testlab.EtherIPv6, func(datagram []byte) []byte {
			return testlab.IPv6(source, destination, 17, 64, datagram)
		}
	}
	frame := testlab.Ether(nextHop, sourceMAC, kind, packet(testlab.UDP(source, destination, 7, 7, marker[:])))
	for n := range datagrams {
		here.Send(t, frame)
		if n%100 == 99 {
			worked()
		}
	}
	for until := time.Now().Add(testlab.Patience); there.Count(marked) < want && time.Now().Before(until); {
		worked()
	}
	return there.Count(marked)
}

func macOf(t *testing.T, namespace *testlab.Namespace, face string) attachment.MAC {
	t.Helper()
	mac, err := attachment.ParseMAC(strings.TrimSpace(namespace.Run(t, "cat", "/sys/class/net/"+face+"/address")))
	if err != nil {
		t.Fatal(err)
	}
	return mac
}
