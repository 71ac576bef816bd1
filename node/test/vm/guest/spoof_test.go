//go:build vmguest

package guest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
	"railwright/node/testlab/impostor"
)

// framesPerKind is the default number of spoofed frames of each kind.
const framesPerKind = 100

// dropsSpoofed checks that no spoofed frame of a pod arrives anywhere with the kernel's datapath and tc, and that a
// flow that drops it counts each frame once. It also checks the representors' counters in both directions.
func (n *node) dropsSpoofed(t *testing.T, me *pod, others ...*pod) {
	t.Helper()
	rail := me.rail
	liar := &impostor.Impostor{
		Rand: rand.New(rand.NewPCG(9, 9)), Me: me.face(t), Gateway: mustMAC(t, rail.bridgeMAC()),
		GatewayIP: netip.MustParseAddr("10.1.0.1"),
		Unrouted: []netip.Addr{
			netip.MustParseAddr(rail.hostAddress()), netip.MustParseAddr(rail.leafAddress()), netip.MustParseAddr("224.0.0.5"),
		},
	}
	liar.Pretends = append(liar.Unrouted, netip.MustParseAddr("10.1.77.77"), netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr(rail.hostAddress6()), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("2001:db8:77::66"))
	watched := map[string]*testlab.Wire{
		"the host": testlab.OpenWire(t, n.host, rail.bridge()),
		"the leaf": testlab.OpenWire(t, n.leaf, rail.port()),
	}
	for _, other := range others {
		liar.Victims = append(liar.Victims, other.face(t))
		liar.Pretends = append(liar.Pretends, other.addresses...)
		watched["a pod of "+other.namespace+" on "+other.rail.name()] = testlab.OpenWire(t, other.Namespace, podInterface)
	}
	mine := testlab.OpenWire(t, me.Namespace, podInterface)
	mine.Send(t, liar.Frame(liar.Datagram(me.addresses[0], others[0].addresses[0], 7, 7)))
	near := watched["a pod of "+others[0].namespace+" on "+others[0].rail.name()]
	testlab.Eventually(t, "an honest datagram is seen", func() bool { return near.Count(impostor.Marked) == 1 })
	for _, wire := range watched {
		wire.Forget()
	}
	frames, times := framesPerKind*liar.Kinds(), 1
	if asked := flag.Arg(0); asked != "" {
		times = 10 // each distinct frame costs an upcall to ovs-vswitchd, which is slow in emulation
		if _, err := fmt.Sscan(asked, &frames); err != nil {
			t.Fatal(err)
		}
	}
	// Flows counted 1,496 of 1,500 frames, and in two runs with the same frames 994 of 1,000. Why some are not counted
	// is unknown. The representor's own counter, checked below, has all of them.
	minimum, maximum := uint64(frames-frames/100), uint64(frames+frames/20)
	dropped, taken, given := n.droppedPackets(t, rail), me.frames(t, "rx"), others[0].frames(t, "tx")
	sent := liar.SendSpoofed(t, mine, frames, times)
	counted := uint64(0)
	for until := time.Now().Add(testlab.Patience); counted < minimum && time.Now().Before(until); time.Sleep(betweenLooks) {
		counted = n.droppedPackets(t, rail) - dropped // ovs-vswitchd reads the datapath's counters twice a second
	}
	// The ARP requests of flush and packets of the kernels are not spoofed but may be counted.
	if counted < minimum || counted > maximum {
		t.Errorf("%d of %d frames were counted as dropped", counted, frames)
	}
	if came := me.frames(t, "rx") - taken; came < uint64(frames) {
		t.Errorf("%d of %d frames arrived at %s", came, frames, rail.representor(me.vf))
	}
	if went := others[0].frames(t, "tx") - given; went > uint64(frames/20) {
		t.Errorf("%d frames were sent out of %s", went, others[0].rail.representor(others[0].vf))
	}
	for where, wire := range watched {
		if arrived := wire.Frames(impostor.Marked); len(arrived) > 0 {
			t.Errorf("%d frames arrived at %s: %s", len(arrived), where, testlab.FrameText(arrived[0]))
		}
	}
	t.Logf("figure: 0 of %d frames that a pod made up arrived, %d were counted as dropped: %v (kernel datapath, %s)", frames,
		counted, sent, emulated)
}

func (p *pod) face(t *testing.T) impostor.Face {
	t.Helper()
	output := p.Run(t, "cat", "/sys/class/net/"+podInterface+"/address")
	made := impostor.Face{MAC: mustMAC(t, strings.TrimSpace(output))}
	for _, address := range p.addresses {
		if address.Is4() {
			made.IPv4 = address
		} else {
			made.IPv6 = address
		}
	}
	return made
}

func mustMAC(t *testing.T, text string) attachment.MAC {
	t.Helper()
	mac, err := attachment.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// droppedPackets returns the number of packets that the rail's bridge has dropped for any reason.
func (n *node) droppedPackets(t *testing.T, rail *rail) (sum uint64) {
	t.Helper()
	dumped := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "dump-flows", rail.bridge())
	for cookie, packets := range testlab.PacketsByCookie(t, dumped) {
		if _, reason, ours := plan.ParseCookie(cookie); ours && reason.Drops() {
			sum += packets
		}
	}
	return sum
}

// frames returns Open vSwitch's frame count of the pod's representor: rx from the pod, tx to the pod.
func (p *pod) frames(t *testing.T, way string) uint64 {
	t.Helper()
	output := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "dump-ports", p.rail.bridge(), p.rail.representor(p.vf))
	return number(t, regexp.MustCompile(way+` pkts=(\d+)`), output)
}
