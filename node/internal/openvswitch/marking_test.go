package openvswitch

import (
	"bytes"
	"fmt"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// TestDSCPIsTrustedRewrittenOrRefused sends packets with several DSCPs and every ECN value to a local pod and beyond
// the leaf, under each policy. Frames of priority flow control must reach nobody.
func TestDSCPIsTrustedRewrittenOrRefused(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	rail.member("a", first.Addresses...)
	rail.member("a", second.Addresses...)
	rail.member("a", remoteIPv4, remoteIPv6)
	here := testlab.OpenWire(t, first.namespace, "eth0")
	near, leaf := testlab.OpenWire(t, second.namespace, "eth0"), testlab.OpenWire(t, rail.leaf, "swp1")
	const each = 20
	used := []byte{0, 26, 46, 48, 63}
	const other, roce = 7, 4791
	cnp := func(dscp byte, port uint16) bool { return dscp == 48 && port == roce }
	for name, test := range map[string]struct {
		marking plan.Marking
		becomes func(dscp byte, port uint16) (byte, bool)
	}{
		"trusted": {plan.Marking{}, func(dscp byte, _ uint16) (byte, bool) { return dscp, true }},
		"rewritten": {plan.Marking{Policy: plan.RewriteMarking, DSCP: 10, CNP: []uint8{48}}, func(dscp byte, port uint16) (byte, bool) {
			if cnp(dscp, port) {
				return dscp, true
			}
			return 10, true
		}},
		"refused": {plan.Marking{Policy: plan.RefuseMarking, Allowed: []uint8{0, 26}, CNP: []uint8{48}},
			func(dscp byte, port uint16) (byte, bool) { return dscp, dscp == 0 || dscp == 26 || cnp(dscp, port) }},
	} {
		rail.rail.Marking = test.marking
		rail.program(t)
		before := rail.readCounters(t)
		want, refused := map[string]int{}, uint64(0)
		for _, wire := range []*testlab.Wire{near, leaf} {
			wire.Forget()
		}
		for n := range each {
			for _, dscp := range used {
				ecn, port := byte(n%4), []uint16{other, roce}[n/4%2]
				for _, packet := range [][]byte{
					testlab.IPv4(first.ipv4(), second.ipv4(), 17, 0, testlab.UDP(first.ipv4(), second.ipv4(), 7, port, marker[:])),
					testlab.IPv6(first.ipv6(), second.ipv6(), 17, 64, testlab.UDP(first.ipv6(), second.ipv6(), 7, port, marker[:])),
					testlab.IPv4(first.ipv4(), remoteIPv4, 17, 0, testlab.UDP(first.ipv4(), remoteIPv4, 7, port, marker[:])),
					testlab.IPv6(first.ipv6(), remoteIPv6, 17, 64, testlab.UDP(first.ipv6(), remoteIPv6, 7, port, marker[:])),
				} {
					testlab.MarkClass(packet, dscp, ecn)
					kind := uint16(testlab.EtherIPv4)
					if packet[0]>>4 == 6 {
						kind = testlab.EtherIPv6
					}
					here.Send(t, testlab.Ether(gateway, first.MAC, kind, packet))
					if becomes, passes := test.becomes(dscp, port); passes {
						want[fmt.Sprintf("IPv%d DSCP %d ECN %d", packet[0]>>4, becomes, ecn)]++
					} else {
						refused++
					}
				}
			}
			here.Send(t, testlab.Ether(gateway, first.MAC, 0x8808, append([]byte{1, 1, 0, 0xff}, bytes.Repeat(marker[:], 7)...)))
			askGateway(t, here, first)
		}
		for where, wire := range map[string]*testlab.Wire{"the pod": near, "the leaf": leaf} {
			seen := map[string]int{}
			testlab.Eventually(t, name+": allowed packets arrive at "+where, func() bool {
				clear(seen)
				for _, frame := range wire.Frames(marked) {
					dscp, ecn := testlab.Class(frame[14:])
					seen[fmt.Sprintf("IPv%d DSCP %d ECN %d", frame[14]>>4, dscp, ecn)]++
				}
				return sum(seen) >= sum(want)/2
			})
			for class, count := range want {
				if seen[class] != count/2 {
					t.Errorf("%s: %d packets with %s arrived at %s, want %d", name, seen[class], class, where, count/2)
				}
			}
			if sum(seen) != sum(want)/2 {
				t.Errorf("%s: %s received %v", name, where, seen)
			}
		}
		after := rail.readCounters(t)
		since := func(reason plan.Reason) uint64 {
			return after[plan.Cookie(first.Number, reason)].Packets - before[plan.Cookie(first.Number, reason)].Packets
		}
		if since(plan.DropMarking) != refused || since(plan.DropSpoofed) != each {
			t.Errorf("%s: %d packets counted as refused, want %d; %d of %d frames of flow control as spoofed", name,
				since(plan.DropMarking), refused, since(plan.DropSpoofed), each)
		}
	}
}

func sum(counts map[string]int) (all int) {
	for _, count := range counts {
		all += count
	}
	return all
}
