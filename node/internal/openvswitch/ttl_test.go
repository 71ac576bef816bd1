package openvswitch

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// TestExpiringTTLCausesNoUpcall checks that the datapath drops the packets by its own flow and counts each.
func TestExpiringTTLCausesNoUpcall(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	rail.member("a", first.Addresses...)
	rail.member("a", second.Addresses...)
	rail.member("a", remoteIPv4, remoteIPv6)
	rail.program(t)
	here, there, leaf := testlab.OpenWire(t, first.namespace, "eth0"), testlab.OpenWire(t, second.namespace, "eth0"), testlab.OpenWire(t, rail.leaf, "swp1")
	const each = 50
	before := sumDropped(rail.readCounters(t), plan.DropNotForUs)
	for n := range each {
		for _, hops := range []byte{0, 1} {
			for _, to := range []int{0, 1} {
				sender, near, far := first.Addresses[to], second.Addresses[to], remoteIPv4
				if to == 1 {
					far = remoteIPv6
				}
				for _, address := range []netip.Addr{near, far} {
					here.Send(t, ending(first, sender, address, hops))
				}
			}
		}
		if n%10 == 9 {
			askGateway(t, here, first) // a port queues no more than this
		}
	}
	cached, err := rail.client.Datapath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, flow := range cached {
		if strings.Contains(flow.Actions, "userspace") && strings.Contains(flow.Match, first.ipv4().String()) && !strings.Contains(flow.Match, "arp") {
			t.Errorf("packet of the pod causes an upcall: %s -> %s", flow.Match, flow.Actions)
		}
	}
	var counted uint64
	for until := time.Now().Add(testlab.Patience); counted < 8*each && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		counted = sumDropped(rail.readCounters(t), plan.DropNotForUs) - before
	}
	if counted < 8*each {
		t.Errorf("%d of %d packets counted:\n%s", counted, 8*each, rail.open.Ofctl(t, bridgeName, "dump-flows"))
	}
	if there.Count(marked)+leaf.Count(marked) > 0 {
		t.Errorf("%d packets arrived at a pod, %d at the leaf", there.Count(marked), leaf.Count(marked))
	}
}

// ending returns a packet with the given hop limit.
func ending(pod *labPod, from, to netip.Addr, hops byte) []byte {
	datagram := testlab.UDP(from, to, 7, 7, marker[:])
	if from.Is6() {
		return testlab.Ether(gateway, pod.MAC, testlab.EtherIPv6, testlab.IPv6(from, to, 17, hops, datagram))
	}
	packet := testlab.IPv4(from, to, 17, 0, datagram)
	packet[8] = hops
	testlab.SumIPv4(packet)
	return testlab.Ether(gateway, pod.MAC, testlab.EtherIPv4, packet)
}
