package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// Parameters of the PF that the pods share, and of the pod with its own rate limit.
const (
	crowdedRail = 1          // its chain has only railwright-cni, which accepts maxRate
	pfRate      = 60_000_000 // low enough that packet processing in software is not the bottleneck
	boundRate   = pfRate / 4
	podMTU      = 1400
	// framing is the overhead in bytes that tbf adds to each packet, so that its rate is a line rate: FCS, preamble and
	// gap.
	framing = 24
	// Overhead in bytes of an Ethernet frame around TCP's payload: Ethernet header and framing; IPv4, TCP and
	// timestamps.
	frameBytes, tcpBytes = 14 + framing, 20 + 20 + 12
	payloadLimit         = float64(pfRate) * (podMTU - tcpBytes) / (podMTU + frameBytes)
)

// contention is the record: the rates of pods of one PF alone and together, in bit/s.
type contention struct {
	LineRate     float64 `json:"line_rate_bits_per_s"`
	MTU          int     `json:"mtu_bytes"`
	BoundRate    float64 `json:"bound_bits_per_s"`
	Seconds      float64 `json:"window_s"`
	Streams      int     `json:"tcp_streams_of_a_pod"`
	PayloadLimit float64 `json:"payload_limit_bits_per_s"`
	Phases       []phase `json:"phases"`
}

// phase is a period in which several pods send at once.
type phase struct {
	Name   string  `json:"name"`
	Pods   []share `json:"pods"`
	Sum    float64 `json:"payload_bits_per_s"`
	Counts counts  `json:"counts"`
}

// share is the result of one pod in a phase.
type share struct {
	Pod     string  `json:"pod"`
	Payload float64 `json:"payload_bits_per_s"`
}

// counts are the packets and bytes during a phase, in the direction of its data.
type counts struct {
	SentByPods traffic `json:"sent_by_pods"`
	ByPF       traffic `json:"by_pf"`
	GotByPods  traffic `json:"received_by_pods"`
	// DroppedByRate is the number of packets that the PF's rate limit dropped.
	DroppedByRate uint64 `json:"dropped_by_the_rate"`
	// DroppedByBound is the number of packets of the limited pod that its own rate limit dropped.
	DroppedByBound uint64 `json:"dropped_by_the_bound"`
	// PayloadSent and PayloadGot are TCP's payload as counted by the sending and the receiving program.
	PayloadSent uint64 `json:"payload_sent_bytes"`
	PayloadGot  uint64 `json:"payload_received_bytes"`
}

// flow is a data transfer between pods of two nodes. Its name is that of the pod on the node with the shared PF.
type flow struct {
	name     string
	from, to *attached
}

// crowd has two pods without a rate limit and one with a limit.
type crowd struct {
	fabric             *fabric
	warm, window       time.Duration
	free, other, bound flow
	record             contention
}

// TestContention checks that pods on one PF share its rate, and that a pod's own limit leaves the rest to the others.
func TestContention(t *testing.T) {
	of := newFRR
	of.nodes = 2
	fabric := newFabric(t, of)
	run := &crowd{fabric: fabric, warm: 500 * time.Millisecond, window: 1500 * time.Millisecond}
	if railnode.Measuring() != "" {
		run.warm, run.window = 2*time.Second, 10*time.Second
	}
	run.record = contention{
		LineRate: pfRate, MTU: podMTU, BoundRate: boundRate, Seconds: run.window.Seconds(), Streams: streamsOfAFlood,
		PayloadLimit: payloadLimit,
	}
	run.attach(t)
	run.limit(t)
	back := func(f flow) flow { return flow{f.name, f.to, f.from} }
	alone := run.phase(t, "a alone", true, run.free)
	otherAlone := run.phase(t, "b alone", true, run.other)
	both := run.phase(t, "a and b", true, run.free, run.other)
	into := run.phase(t, "to a and b", false, back(run.free), back(run.other))
	bounded := run.phase(t, "c alone, bounded", true, run.bound)
	beside := run.phase(t, "a beside c, bounded", true, run.free, run.bound)
	railnode.Keep(t, run.record)
	// The test compares no rate with a fixed number, because the machine may be busy. Drop counters show which limit
	// was reached.
	for _, p := range []phase{alone, otherAlone, both, into, beside} {
		if p.Counts.DroppedByRate == 0 {
			t.Errorf("%s: PF's rate limit dropped no packet, so it did not limit the pods", p.Name)
		}
	}
	for _, together := range []phase{both, into, beside} {
		for _, one := range together.Pods {
			if one.Payload == 0 {
				t.Errorf("%s: %s received nothing", together.Name, one.Pod)
			}
		}
	}
	for _, p := range []phase{bounded, beside} {
		if p.Counts.DroppedByBound == 0 {
			t.Errorf("%s: the pod's own rate limit dropped no packet", p.Name)
		}
	}
	if dropped := alone.Counts.DroppedByBound + both.Counts.DroppedByBound; dropped != 0 {
		t.Errorf("%d packets were dropped by a pod's rate limit, although no pod of the phase has one", dropped)
	}
	// The pod without a limit gets four times the rate of the limited pod by design.
	if alone.Sum <= bounded.Sum || beside.Pods[0].Payload <= beside.Pods[1].Payload {
		t.Errorf("pod without a limit must be faster than the limited pod: alone %.1f and %.1f Mb/s, together %v", alone.Sum/1e6, bounded.Sum/1e6,
			beside.Pods)
	}
}

// attach attaches three pods of one tenant on the first node, and a partner for each on the other.
func (c *crowd) attach(t *testing.T) {
	t.Helper()
	near, far := c.fabric.nodes[0], c.fabric.nodes[1]
	add := func(node *node) *attached { return node.attachedPod(t, "red-1", crowdedRail).rail[crowdedRail] }
	c.free, c.other = flow{"a", add(near), add(far)}, flow{"b", add(near), add(far)}
	text := near.conflist(t, crowdedRail, map[string]any{"type": "railwright-cni", "maxRate": fmt.Sprintf("%dMb/s", boundRate/1_000_000)})
	bounded, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	plain := near.runtime.lists[crowdedRail]
	near.runtime.lists[crowdedRail] = bounded
	c.bound = flow{"c", add(near), add(far)}
	near.runtime.lists[crowdedRail] = plain
}

// limit limits the PF's rate in both directions, as its cable would.
func (c *crowd) limit(t *testing.T) {
	t.Helper()
	near, leaf := c.fabric.nodes[0], c.fabric.leaves[crowdedRail]
	for _, end := range []struct {
		namespace *testlab.Namespace
		face      string
	}{{near.Host, uplinkOf(crowdedRail)}, {leaf.Namespace, near.Rails[crowdedRail].LeafPort()}} {
		end.namespace.Run(t, "tc", "qdisc", "replace", "dev", end.face, "root", "tbf", "rate", fmt.Sprint(pfRate), "burst", "50kb",
			// The queue is shorter than the send buffer of Open vSwitch's socket, so that packets are dropped and
			// counted here.
			"limit", "100kb", "overhead", fmt.Sprint(framing))
	}
}

// phase runs a phase in which these pods send as fast as they can, out of the shared PF or in through it.
func (c *crowd) phase(t *testing.T, name string, out bool, flows ...flow) phase {
	t.Helper()
	before := c.count(t, out, flows)
	floods := make([]*flood, len(flows))
	for n, f := range flows {
		floods[n] = newFlood(t, f)
	}
	time.Sleep(c.warm)
	began, first := time.Now(), receivedBytes(floods)
	time.Sleep(c.window)
	took, last := time.Since(began).Seconds(), receivedBytes(floods)
	made := phase{Name: name}
	for n, f := range flows {
		rate := 8 * float64(last[n]-first[n]) / took
		made.Pods = append(made.Pods, share{f.name, rate})
		made.Sum += rate
	}
	var sent, got uint64
	for _, running := range floods {
		sentByOne, gotByOne := running.stop(t)
		sent, got = sent+sentByOne, got+gotByOne
	}
	made.Counts = c.count(t, out, flows).since(before)
	made.Counts.PayloadSent, made.Counts.PayloadGot = sent, got
	made.Counts.check(t, name)
	t.Logf("%-20s %.1f Mb/s of %.1f together, %v; %+v", name, made.Sum/1e6, payloadLimit/1e6, made.Pods, made.Counts)
	c.record.Phases = append(c.record.Phases, made)
	return made
}

// count returns the counters up to now.
func (c *crowd) count(t *testing.T, out bool, flows []flow) counts {
	t.Helper()
	near, leaf := c.fabric.nodes[0], c.fabric.leaves[crowdedRail]
	pf := look(t, near.Host, uplinkOf(crowdedRail))
	found := counts{ByPF: pf.out, DroppedByRate: pf.dropped}
	if !out {
		found.ByPF, found.DroppedByRate = pf.in, look(t, leaf.Namespace, near.Rails[crowdedRail].LeafPort()).dropped
	}
	found.DroppedByBound = near.meteredPackets(t, crowdedRail)
	for _, f := range flows {
		found.SentByPods = found.SentByPods.and(look(t, f.from.pod.Namespace, faceOf(crowdedRail)).out)
		found.GotByPods = found.GotByPods.and(look(t, f.to.pod.Namespace, faceOf(crowdedRail)).in)
	}
	return found
}

// since returns the difference to an earlier count.
func (c counts) since(before counts) counts {
	c.SentByPods, c.ByPF = c.SentByPods.less(before.SentByPods), c.ByPF.less(before.ByPF)
	c.GotByPods = c.GotByPods.less(before.GotByPods)
	c.DroppedByRate -= before.DroppedByRate
	c.DroppedByBound -= before.DroppedByBound
	return c
}

var droppedByBand = regexp.MustCompile(`\b0: packet_count:(\d+)`)

// meteredPackets returns the number of packets that the meters of the rail's pods have dropped.
func (nd *node) meteredPackets(t *testing.T, rail int) (sum uint64) {
	t.Helper()
	stats := nd.OVS.Ofctl(t, bridgeOf(rail), "meter-stats")
	for _, found := range droppedByBand.FindAllStringSubmatch(stats, -1) {
		count, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// check checks that the counters agree: all data went from the sending pods through the PF to the receiving pods.
func (c counts) check(t *testing.T, name string) {
	t.Helper()
	const others = 200 // packets of BGP, ARP and ND
	if c.PayloadGot != c.PayloadSent || c.PayloadGot == 0 {
		t.Errorf("%s: %d bytes were sent, %d arrived", name, c.PayloadSent, c.PayloadGot)
	}
	if c.GotByPods.Bytes < c.PayloadGot || c.GotByPods.Packets > c.ByPF.Packets+others || c.ByPF.Packets > c.SentByPods.Packets+others {
		t.Errorf("%s: the counters contradict each other: %+v", name, c)
	}
}
