package lab

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
	"railwright/node/testlab/impostor"
)

// spoofedFrames is the total number of spoofed frames. None may arrive.
const spoofedFrames = 100_000

func (a *attached) face() impostor.Face { return impostor.Face{MAC: a.mac, IPv4: a.ipv4, IPv6: a.ipv6} }

// spoofing checks that no spoofed frame of a pod arrives at another pod, the leaf or the host.
func spoofing(t *testing.T, fabric *fabric) {
	node, other := fabric.nodes[0], fabric.nodes[1]
	me, near, stranger := node.attachedPod(t, "red-1", 0), node.attachedPod(t, "red-2", 0), node.attachedPod(t, "alone", 0)
	far := other.attachedPod(t, "red-1", 0)
	fabric.mustSettle(t)
	gateway, err := attachment.ParseMAC(node.Rails[0].BridgeMAC())
	if err != nil {
		t.Fatal(err)
	}
	liar := &impostor.Impostor{
		Rand: rand.New(rand.NewPCG(9, 9)), Me: me.rail[0].face(), Gateway: gateway, GatewayIP: netip.MustParseAddr("10.1.1.1"),
		Victims:  []impostor.Face{near.rail[0].face(), far.rail[0].face()},
		Unrouted: []netip.Addr{node.Rails[0].Address(), node.Rails[0].LeafAddress(), netip.MustParseAddr("224.0.0.5")},
		Pretends: []netip.Addr{
			near.rail[0].ipv4, far.rail[0].ipv4, stranger.rail[0].ipv4, node.Rails[0].Address(), node.Rails[0].LeafAddress(),
			netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.77.77"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("127.0.0.1"),
			near.rail[0].ipv6, far.rail[0].ipv6, stranger.rail[0].ipv6, netip.MustParseAddr("fd00:1:1::1"), netip.MustParseAddr("fe80::1"),
			netip.MustParseAddr("2001:db8::66"), netip.MustParseAddr("::1"), netip.MustParseAddr("fd00:1:77::77"),
		},
	}
	mine := testlab.OpenWire(t, me.Namespace, faceOf(0))
	watched := map[string]*testlab.Wire{
		"the same tenant's pod": testlab.OpenWire(t, near.Namespace, faceOf(0)),
		"another tenant's pod":  testlab.OpenWire(t, stranger.Namespace, faceOf(0)),
		"a pod on another node": testlab.OpenWire(t, far.Namespace, faceOf(0)),
		"the host":              testlab.OpenWire(t, node.Host, bridgeOf(0)),
		"the leaf":              testlab.OpenWire(t, fabric.leaves[0].Namespace, "swp1"),
	}
	checkWiresSeeMarks(t, liar, mine, watched)
	before := me.receivedFrames(t)
	sent := liar.SendSpoofed(t, mine, spoofedFrames, 1)
	if taken := me.receivedFrames(t) - before; taken < spoofedFrames {
		t.Errorf("Open vSwitch received only %d of %d frames, so the test proves less", taken, spoofedFrames)
	}
	for where, wire := range watched {
		if arrived := wire.Frames(impostor.Marked); len(arrived) > 0 {
			t.Errorf("%d frames arrived at %s: %s", len(arrived), where, testlab.FrameText(arrived[0]))
		}
	}
	t.Logf("0 of %d frames arrived: %v", spoofedFrames, sent)
}

// checkWiresSeeMarks checks with valid datagrams that the wires on their path see the mark, to detect wires that see
// nothing.
func checkWiresSeeMarks(t *testing.T, i *impostor.Impostor, mine *testlab.Wire, watched map[string]*testlab.Wire) {
	t.Helper()
	near, far := watched["the same tenant's pod"], watched["a pod on another node"]
	for _, victim := range i.Victims {
		mine.Send(t, i.Frame(i.Datagram(i.Me.IPv4, victim.IPv4, 7, 7)))
		mine.Send(t, i.Frame(i.Datagram(i.Me.IPv6, victim.IPv6, 7, 7)))
	}
	testlab.Eventually(t, "honest datagrams are seen where they pass", func() bool {
		return near.Count(impostor.Marked) == 2 && far.Count(impostor.Marked) == 2 && watched["the leaf"].Count(impostor.Marked) >= 2
	})
	testlab.Eventually(t, "the host's own packets are seen", func() bool {
		return watched["the host"].Count(func([]byte) bool { return true }) > 0
	})
	// The pods answer with ICMP port unreachable, which contains the mark too.
	testlab.Eventually(t, "the ICMP errors have arrived", func() bool { return mine.Count(impostor.Marked) == 4 })
	for _, wire := range watched {
		wire.Forget()
	}
}

// receivedFrames returns the number of frames that Open vSwitch received from the pod's port.
func (p *pod) receivedFrames(t *testing.T) int {
	t.Helper()
	counters := p.node.OVS.Ofctl(t, bridgeOf(0), "dump-ports", p.rail[0].port)
	_, rest, _ := strings.Cut(counters, "rx pkts=")
	number, _, _ := strings.Cut(rest, ",")
	count, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%q: %v", counters, err)
	}
	return count
}
