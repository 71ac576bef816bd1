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

// framesOfACell are sent of each protocol by each end to each other.
const framesOfACell = 10

// end of the matrix: who sends and whom packets are for. All are on rail 0.
type end struct {
	name       string
	node       *node     // that it is on, or that the leaf's port leads to
	face       *attached // of a pod
	leaf       bool
	wire       *testlab.Wire
	mac        attachment.MAC
	ipv4, ipv6 netip.Addr
	other      *end // of another tenant
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

// speaker is an end, or the fabric that pretends to be one.
type speaker struct {
	name       string
	at         *end // whose wire it speaks by
	mac, next  attachment.MAC
	ipv4, ipv6 netip.Addr
	as         *end // nil: nobody that is known
}

// cell of the matrix.
type cell struct {
	from speaker
	to   *end
	protocol
}

func (c cell) String() string {
	return fmt.Sprintf("%s from %s to %s", c.name, c.from.name, c.to.name)
}

// open says whether packets that are routed may go from one to the other.
func (c cell) open() bool {
	from, to := c.from.at, c.to
	switch {
	case from.leaf && to.host():
		return from.node == to.node // whoever it says it is: a host is a host as others
	case from.leaf:
		// The fabric is believed who sent what it brings, but for who is here.
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

// leavesNode: the leaf of the node sees it pass.
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

// seen says how many of the cell's frames have to come in at an end; of all others none.
func (c cell) seen(at *end) int {
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
		return framesOfACell
	}
	return 0
}

// counted is what a flow of a node's bridge counts.
type counted struct {
	node   *node
	port   string // of a pod; empty: what the rail drops for all
	reason plan.Reason
}

// counts that the cell's frames make; what kernels make too (ARP, multicast) is not among them.
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
		return []counted{{from.node, "", plan.DropUnknownDestination}} // it does not go back where it came from
	}
	return nil
}

// ends of what was sent honestly: who has counted it last.
func (c cell) ends() []counted {
	from, to, as := c.from.at, c.to, c.from.as
	switch {
	case c.open() && (to.face == nil || c.seen(to) == 0):
		return nil // the host's own, or what a router stops
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

// cells: every protocol from every end to every other, of tenants, hosts and the fabric, in both directions. Nothing is
// seen but where it is meant to be, there it is all of it, and Open vSwitch counted every packet on its way.
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
		len(matrix.all), framesOfACell*len(matrix.all), matrix.arrived, crossed)
}

// cellMatrix remembers what was sent.
type cellMatrix struct {
	ends    []*end
	all     map[uint32]cell
	want    map[counted]uint64
	arrived int
}

// cellMagic begins the mark of a frame; the cell's number follows.
var cellMagic = []byte{0x9d, 0x63, 0xe1, 0x1c}

func cellOf(frame []byte) (uint32, bool) {
	at := bytes.Index(frame, cellMagic)
	if at < 0 || len(frame) < at+8 {
		return 0, false
	}
	return binary.BigEndian.Uint32(frame[at+4:]), true
}

// speak a protocol to all other ends, and see that what was sent is where it should be.
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
			m.want[kind] += framesOfACell
		}
		frame := protocol.make(from, to, binary.BigEndian.AppendUint32(slices.Clone(cellMagic), number))
		for range framesOfACell {
			from.at.wire.Send(t, frame)
		}
		m.settle(t, replies[len(replies)-1:])
		from.at.workedOff(t)
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

// settle: of these cells all has arrived that is to arrive; and nothing else of any cell.
func (m *cellMatrix) settle(t *testing.T, replies []uint32) (found map[*end]map[uint32]int) {
	t.Helper()
	missing := func() (missingKind string) {
		found = m.tally()
		for _, number := range replies {
			for _, at := range m.ends {
				if want := m.all[number].seen(at); found[at][number] < want {
					return fmt.Sprintf("%d of %d frames of %v came to %s", found[at][number], want, m.all[number], at.name)
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
			if want := m.all[number].seen(at); count > want {
				t.Errorf("%d frames of %v came to %s, want %d", count, m.all[number], at.name, want)
			}
		}
	}
	return found
}

// tally of the frames that every end has got since it forgot.
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

// workedOff: whoever is on the link answered a question that came after all that was sent.
func (e *end) workedOff(t *testing.T) {
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

// ends of the matrix: three tenants with pods on one node and on two, a pair that is peered, hosts, and the leaf's ports.
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

// speakers: all ends as themselves, and the leaf as pods of the other node, as one that is here, and as nobody.
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
