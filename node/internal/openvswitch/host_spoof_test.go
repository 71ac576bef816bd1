package openvswitch

import (
	"bytes"
	"net/netip"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// lastMark marks the valid frame that is sent last: once it arrives, all others are processed.
var lastMark = attachment.MAC{0x02, 0x77, 0x77, 0x77, 0x77, 0x77}

// TestHostSendsOnlyAsItself checks that a program in the host's network with raw sockets and the bridge's MAC cannot
// send as a pod of another node.
func TestHostSendsOnlyAsItself(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	pod := rail.addPod(t, 2, "a")
	rail.member("a", pod.Addresses...)
	rail.member("a", remoteIPv4, remoteIPv6)
	rail.program(t)
	host, leaf := testlab.OpenWire(t, rail.host, bridgeName), testlab.OpenWire(t, rail.leaf, "swp1")
	leafMAC := macOf(t, rail.leaf, "swp1")
	datagram4 := func(from netip.Addr, mark attachment.MAC) []byte {
		return testlab.Ether(leafMAC, gateway, testlab.EtherIPv4, testlab.IPv4(from, remoteIPv4, 17, 0, testlab.UDP(from, remoteIPv4, 7, 7, mark[:])))
	}
	datagram6 := func(from netip.Addr, mark attachment.MAC) []byte {
		return testlab.Ether(leafMAC, gateway, testlab.EtherIPv6, testlab.IPv6(from, remoteIPv6, 17, 64, testlab.UDP(from, remoteIPv6, 7, 7, mark[:])))
	}
	own4, own6, everybody := netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00:ffff::"), netip.MustParseAddr("ff02::1")
	advertisement := testlab.Discovery(pod.Addresses[1], everybody, 136, 0x20000000, pod.Addresses[1], 2, marker)
	lies := [][]byte{
		datagram4(pod.Addresses[0], marker), datagram6(pod.Addresses[1], marker), datagram4(outsider, marker), datagram4(nobody, marker),
		datagram4(remoteIPv4, marker), datagram6(remoteIPv6, marker), datagram6(netip.IPv6Unspecified(), marker),
		testlab.Tagged(5, datagram4(own4, marker)), testlab.Tagged(5, datagram6(own6, marker)),
		testlab.Ether(testlab.Broadcast, gateway, testlab.EtherARP, testlab.ARP(2, gateway, pod.Addresses[0], marker, remoteIPv4)),
		testlab.Ether(testlab.Broadcast, gateway, testlab.EtherARP, testlab.ARP(1, marker, own4, marker, remoteIPv4)),
		testlab.Ether(allNodes, gateway, testlab.EtherIPv6, testlab.IPv6(pod.Addresses[1], everybody, 58, 255, advertisement)),
		testlab.Ether(leafMAC, marker, testlab.EtherIPv4, datagram4(own4, marker)[14:]),
		testlab.Ether(leafMAC, gateway, 0x88cc, bytes.Repeat(marker[:], 10)),
	}
	before, rounds := sumDropped(rail.readCounters(t), plan.DropSpoofed), 100
	for range rounds {
		for _, frame := range lies {
			host.Send(t, frame)
		}
		sent := leaf.Count(isLast)
		host.Send(t, datagram4(own4, lastMark))
		host.Send(t, datagram6(own6, lastMark))
		testlab.Eventually(t, "the host's own frames", func() bool { return leaf.Count(isLast) == sent+2 })
	}
	if arrived := leaf.Frames(marked); len(arrived) > 0 {
		t.Errorf("%d spoofed frames of the host arrived: %s", len(arrived), testlab.FrameText(arrived[0]))
	}
	// The kernel drops none on its way to the bridge, but its own multicast may add to the count.
	if counted := sumDropped(rail.readCounters(t), plan.DropSpoofed) - before; counted < uint64(rounds*len(lies)) {
		t.Errorf("%d of %d frames counted as spoofed", counted, rounds*len(lies))
	}
}

func isLast(frame []byte) bool { return bytes.Contains(frame, lastMark[:]) }
