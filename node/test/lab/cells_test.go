package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// framesPerCell is the number of frames that each speaker sends to each end per protocol.
const framesPerCell = 10

// end is a sender or receiver of the matrix. All ends are on rail 0.
type end struct {
	name       string
	node       *node     // the end's node, or the one that the leaf's port leads to
	face       *attached // set for pods only
	leaf       bool
	wire       *testlab.Wire
	mac        attachment.MAC
	ipv4, ipv6 netip.Addr
	other      *end // an end of another tenant
}

func (e *end) tenant() string {
	if e.face == nil {
		return ""
	}
	return tenantOf(e.face)
}

func (e *end) host() bool { return e.face == nil && !e.leaf }

func (e *end) elsewhere4() []byte { return e.other.ipv4.AsSlice() }
func (e *end) elsewhere6() []byte { return e.other.ipv6.AsSlice() }

// speaker is an end that uses its own addresses, or the leaf with spoofed ones.
type speaker struct {
	name       string
	at         *end // the end whose wire it sends on
	mac, next  attachment.MAC
	ipv4, ipv6 netip.Addr
	as         *end // the end whose addresses it uses; nil if they are unknown
}

// cell is a combination of speaker, receiver and protocol.
type cell struct {
	from speaker
	to   *end
	protocol
}

func (c cell) String() string {
	return fmt.Sprintf("%s from %s to %s", c.name, c.from.name, c.to.name)
}

// open reports whether routed packets from the speaker may reach the receiver.
func (c cell) open() bool {
	from, to := c.from.at, c.to
	switch {
	case from.leaf && to.host():
		return from.node == to.node // whatever addresses it uses: all hosts are treated alike
	case from.leaf:
		// Source addresses from the fabric are trusted, except those of this node's pods.
		as := c.from.as
		return to.face != nil && as != nil && as.face != nil && as.node != to.node && from.node == to.node && sameOrPeered(as, to)
	case from.face != nil:
		return to.face != nil && sameOrPeered(from, to)
	}
	return to.face == nil // a host reaches leaves and hosts
}

func sameOrPeered(a, other *end) bool {
	return a.tenant() == other.tenant() || peered(a.face, other.face)
}

// leavesNode reports whether the node's leaf receives the frames.
func (c cell) leavesNode() bool {
	from := c.from.at
	switch {
	case from.leaf || c.scope == tagged:
		return false
	case from.host():
		return true
	}
	return c.scope == routed && c.open() && c.to.node != from.node
}

// wantAt returns the number of the cell's frames that must arrive at an end.
func (c cell) wantAt(at *end) int {
	from := c.from.at
	arrives := false
	switch {
	case at.leaf && at.node == from.node && at != from:
		arrives = c.leavesNode()
	case at == from && from.face != nil:
		arrives = c.scope == asked // the gateway's answers
	case at.host() && at.node == from.node && from.leaf && c.scope != routed:
		arrives = c.scope == asked || c.scope == onLink || c.name == linkGroup
	case at == c.to && !at.leaf && c.scope == routed:
		arrives = c.open() && (!c.stopped || c.to.node == from.node)
	}
	if arrives {
		return framesPerCell
	}
	return 0
}

// counted identifies a packet counter of a node's bridge.
type counted struct {
	node   *node
	port   string // of a pod; "" counts the rail's own drops
	reason plan.Reason
}

// counts returns the counters that the cell's frames increase. It leaves out ARP and multicast, which kernels send too.
func (c cell) counts() []counted {
	from := c.from.at
	spoofed := c.scope == tagged || c.name == arpReply
	switch {
	case spoofed && from.face != nil:
		return []counted{{from.node, from.face.port, plan.DropSpoofed}}
	case spoofed && from.host() && c.scope == tagged:
		return []counted{{from.node, "", plan.DropSpoofed}}
	case c.scope != routed:
		return nil
	case from.face != nil:
		return append(c.ends(), counted{from.node, from.face.port, plan.Sent})
	case from.leaf && c.to.node == from.node || from.host() && !c.stopped:
		return c.ends()
	case from.leaf:
		return []counted{{from.node, "", plan.DropUnknownDestination}} // a packet is never sent back out of the port that it came in by
	}
	return nil
}

// ends returns the counter at which routed frames end: that of the receiving pod, or of the rule that drops them.
func (c cell) ends() []counted {
	from, to, as := c.from.at, c.to, c.from.as
	switch {
	case c.open() && (to.face == nil || c.wantAt(to) == 0):
		return nil // the host's own packets, or packets that a router drops
	case c.open():
		return []counted{{to.node, to.face.port, plan.Received}}
	case from.face != nil && to.face == nil:
		return []counted{{from.node, "", plan.DropUnknownDestination}}
	case from.face != nil:
		return []counted{{from.node, "", plan.DropOtherTenant}}
	case to.face == nil:
		return nil
	case as == nil || as.face == nil:
		return []counted{{to.node, "", plan.DropUnknownSource}}
	case as.node == to.node:
		return []counted{{to.node, as.face.port, plan.DropSpoofed}}
	}
	return []counted{{to.node, "", plan.DropOtherTenant}}
}

// cells sends every protocol from every speaker (tenants, hosts and the fabric) to every end, in both directions. It
// checks that all frames arrive where they should and none elsewhere, and that Open vSwitch counted every packet.
func cells(t *testing.T, fabric *fabric) {
	ends := fabric.ends(t)
	speakers := fabric.speakers(t, ends)
	keepQuiet(t, fabric, ends)
	matrix := &cellMatrix{ends: ends, all: map[uint32]cell{}, want: map[counted]uint64{}}
	before := matrix.count(t, fabric)
	for _, protocol := range protocols() {
		for _, from := range speakers {
			matrix.speak(t, from, protocol)
		}
	}
	matrix.settle(t, nil)
	after := matrix.count(t, fabric)
	crossed := 0
	for kind, want := range matrix.want {
		if found := after[kind] - before[kind]; found != want {
			t.Errorf("%s counted %d packets as %v of %q, want %d", kind.node.Name(), found, kind.reason, kind.port, want)
		}
		if kind.reason != plan.Sent && kind.reason != plan.Received {
			crossed += int(want)
		}
	}
	t.Logf("%d cells, %d frames: %d were to arrive and did; %d were counted as refused, none of them arrived anywhere",
		len(matrix.all), framesPerCell*len(matrix.all), matrix.arrived, crossed)
}

// cellMatrix records the frames that were sent.
type cellMatrix struct {
	ends    []*end
	all     map[uint32]cell
	want    map[counted]uint64
	arrived int
}

// cellMagic begins the mark in a frame. The cell's number follows it.
var cellMagic = []byte{0x9d, 0x63, 0xe1, 0x1c}

func cellOf(frame []byte) (uint32, bool) {
	at := bytes.Index(frame, cellMagic)
	if at < 0 || len(frame) < at+8 {
		return 0, false
	}
	return binary.BigEndian.Uint32(frame[at+4:]), true
}

// speak sends a protocol to all other ends and checks where the frames arrive.
func (m *cellMatrix) speak(t *testing.T, from speaker, protocol protocol) {
	t.Helper()
	var replies []uint32
	for _, to := range m.ends {
		if to == from.at || to == from.as {
			continue
		}
		number := uint32(len(m.all) + 1)
		made := cell{from, to, protocol}
		m.all[number] = made
		replies = append(replies, number)
		for _, kind := range made.counts() {
			m.want[kind] += framesPerCell
		}
		frame := protocol.make(from, to, binary.BigEndian.AppendUint32(slices.Clone(cellMagic), number))
		for range framesPerCell {
			from.at.wire.Send(t, frame)
		}
		m.settle(t, replies[len(replies)-1:])
		from.at.awaitProcessed(t)
	}
	for _, numbers := range m.settle(t, replies) {
		for _, count := range numbers {
			m.arrived += count
		}
	}
	for _, at := range m.ends {
		at.wire.Forget()
	}
}

// settle waits until all expected frames have arrived and fails the test if any other frame of a cell did.
func (m *cellMatrix) settle(t *testing.T, replies []uint32) (found map[*end]map[uint32]int) {
	t.Helper()
	missing := func() (missingKind string) {
		found = m.tally()
		for _, number := range replies {
			for _, at := range m.ends {
				if want := m.all[number].wantAt(at); found[at][number] < want {
					return fmt.Sprintf("%d of %d frames of %v arrived at %s", found[at][number], want, m.all[number], at.name)
				}
			}
		}
		return ""
	}
	name := missing()
	for until := time.Now().Add(patience); name != "" && time.Now().Before(until); name = missing() {
		time.Sleep(200 * time.Microsecond)
	}
	if name != "" {
		t.Fatal(name)
	}
	for at, numbers := range found {
		for number, count := range numbers {
			if want := m.all[number].wantAt(at); count > want {
				t.Errorf("%d frames of %v arrived at %s, want %d", count, m.all[number], at.name, want)
			}
		}
	}
	return found
}

// tally counts the frames that each end received since its wire was cleared, by cell.
func (m *cellMatrix) tally() map[*end]map[uint32]int {
	found := map[*end]map[uint32]int{}
	for _, at := range m.ends {
		numbers := map[uint32]int{}
		at.wire.Count(func(frame []byte) bool {
			number, ours := cellOf(frame)
			if ours {
				numbers[number]++
			}
			return ours
		})
		found[at] = numbers
	}
	return found
}

// awaitProcessed waits for the link's answer to a request that follows all frames sent.
func (e *end) awaitProcessed(t *testing.T) {
	t.Helper()
	rail := e.node.Rails[0]
	own, target, answeredBy := e.ipv4, netip.MustParseAddr(fmt.Sprintf("10.1.%d.1", e.node.N)), mustMAC(t, rail.BridgeMAC())
	switch {
	case e.leaf:
		target = rail.Address()
	case e.host():
		target, answeredBy = rail.LeafAddress(), macOfFace(t, e.node.fabric.leaves[0].Namespace, rail.LeafPort())
	}
	answers := func(frame []byte) bool {
		return len(frame) >= 42 && binary.BigEndian.Uint16(frame[12:]) == testlab.EtherARP && frame[21] == 2 && bytes.Equal(frame[22:28], answeredBy[:])
	}
	before := e.wire.Count(answers)
	e.wire.Send(t, testlab.Ether(testlab.Broadcast, e.mac, testlab.EtherARP, testlab.ARP(1, e.mac, own, attachment.MAC{}, target)))
	testlab.Eventually(t, "the link of "+e.name+" answers", func() bool { return e.wire.Count(answers) > before })
}

// ends returns the ends of the matrix: pods of four tenants (two of them peered) on one node and on both, the hosts,
// and the leaf's ports.
func (f *fabric) ends(t *testing.T) []*end {
	t.Helper()
	var made []*end
	for _, where := range []struct {
		node      int
		namespace string
	}{{0, "red-1"}, {0, "red-2"}, {1, "red-1"}, {0, "alone"}, {1, "alone"}, {1, "green"}, {0, "blue"}} {
		node := f.nodes[where.node]
		face := node.attachedPod(t, where.namespace, 0).rail[0]
		made = append(made, &end{
			name: where.namespace + " on " + node.Name(), node: node, face: face, mac: face.mac, ipv4: face.ipv4, ipv6: face.ipv6,
			wire: testlab.OpenWire(t, face.pod.Namespace, faceOf(0)),
		})
	}
	f.mustSettle(t)
	leaf := f.leaves[0]
	for _, node := range f.nodes[:2] {
		rail := node.Rails[0]
		made = append(made, &end{
			name: "host " + node.Name(), node: node, mac: mustMAC(t, rail.BridgeMAC()), ipv4: rail.Address(), ipv6: rail.Address6(),
			wire: testlab.OpenWire(t, node.Host, bridgeOf(0)),
		}, &end{
			name: "leaf at " + node.Name(), node: node, leaf: true, mac: macOfFace(t, leaf.Namespace, rail.LeafPort()),
			ipv4: rail.LeafAddress(), ipv6: rail.LeafAddress6(), wire: testlab.OpenWire(t, leaf.Namespace, rail.LeafPort()),
		})
	}
	for _, cell := range made {
		cell.other = made[slices.IndexFunc(made, func(other *end) bool { return other.face != nil && other.tenant() != cell.tenant() })]
	}
	return made
}

// speakers returns all ends with their own addresses, and the leaf with those of pods of the other node, of a pod of
// this node, and with unknown ones.
func (f *fabric) speakers(t *testing.T, ends []*end) []speaker {
	t.Helper()
	var made []speaker
	leaf := map[*node]*end{}
	for _, e := range ends {
		if e.leaf {
			leaf[e.node] = e
		}
	}
	for _, e := range ends {
		next := mustMAC(t, e.node.Rails[0].BridgeMAC())
		if e.host() {
			next = leaf[e.node].mac
		}
		made = append(made, speaker{e.name, e, e.mac, next, e.ipv4, e.ipv6, e})
	}
	first := leaf[f.nodes[0]]
	next := mustMAC(t, f.nodes[0].Rails[0].BridgeMAC())
	for _, as := range ends {
		if as.face != nil && (as.node != f.nodes[0] || as.tenant() == "alone") {
			made = append(made, speaker{first.name + " as " + as.name, first, first.mac, next, as.ipv4, as.ipv6, as})
		}
	}
	return append(made, speaker{first.name + " as nobody", first, first.mac, next, netip.MustParseAddr("203.0.113.9"),
		netip.MustParseAddr("2001:db8:dead::9"), nil})
}
