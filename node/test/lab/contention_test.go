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

// The PF of the node whose pods compete, and the one pod that has a bound of its own.
const (
	crowdedRail = 1          // its chain is railwright-cni alone, which takes maxRate
	pfRate      = 60_000_000 // little enough that packets in software are no narrower place
	boundRate   = pfRate / 4
	podMTU      = 1400
	// framing that tbf is told to add to each packet that it sees: FCS, preamble and gap; so that its rate is a line rate.
	framing = 24
	// Overhead of an Ethernet frame beside TCP's payload: header and framing; IPv4, TCP and timestamps.
	frameBytes, tcpBytes = 14 + framing, 20 + 20 + 12
	payloadLimit         = float64(pfRate) * (podMTU - tcpBytes) / (podMTU + frameBytes)
)

// contention is the record: what pods of one PF got alone and together. Rates in bit/s.
type contention struct {
	LineRate     float64 `json:"line_rate_bits_per_s"`
	MTU          int     `json:"mtu_bytes"`
	BoundRate    float64 `json:"bound_bits_per_s"`
	Seconds      float64 `json:"window_s"`
	Streams      int     `json:"tcp_streams_of_a_pod"`
	PayloadLimit float64 `json:"payload_limit_bits_per_s"`
	Phases       []phase `json:"phases"`
}

// phase of a few pods that send at once.
type phase struct {
	Name   string  `json:"name"`
	Pods   []share `json:"pods"`
	Sum    float64 `json:"payload_bits_per_s"`
	Counts counts  `json:"counts"`
}

// share of one pod.
type share struct {
	Pod     string  `json:"pod"`
	Payload float64 `json:"payload_bits_per_s"`
}

// counts of packets and bytes while a phase ran, in the direction of its data.
type counts struct {
	SentByPods traffic `json:"sent_by_pods"`
	ByPF       traffic `json:"by_pf"`
	GotByPods  traffic `json:"received_by_pods"`
	// DroppedByRate are the packets that the PF's rate had no room for.
	DroppedByRate uint64 `json:"dropped_by_the_rate"`
	// DroppedByBound are the packets of the bounded pod above its own rate.
	DroppedByBound uint64 `json:"dropped_by_the_bound"`
	// Payload of TCP, as the sending and the receiving program counted it.
	PayloadSent uint64 `json:"payload_sent_bytes"`
	PayloadGot  uint64 `json:"payload_received_bytes"`
}

// flow of data from a pod to one of the other node; its name is that of the pod on the crowded one.
type flow struct {
	name     string
	from, to *attached
}

// crowd of pods: two without a bound, one with.
type crowd struct {
	fabric             *fabric
	warm, window       time.Duration
	free, other, bound flow
	record             contention
}

// TestContention: pods whose interfaces share a PF share its rate, and a pod's own bound leaves the rest to others.
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
	// No rate is held against a number here: the machine may have other work. Who stands in the way is told by the counter
	// of what it dropped.
	for _, p := range []phase{alone, otherAlone, both, into, beside} {
		if p.Counts.DroppedByRate == 0 {
			t.Errorf("%s: the PF's rate has dropped nothing, so it was not what bounded them", p.Name)
		}
	}
	for _, together := range []phase{both, into, beside} {
		for _, one := range together.Pods {
			if one.Payload == 0 {
				t.Errorf("%s: %s got nothing", together.Name, one.Pod)
			}
		}
	}
	for _, p := range []phase{bounded, beside} {
		if p.Counts.DroppedByBound == 0 {
			t.Errorf("%s: the pod's own bound has dropped nothing", p.Name)
		}
	}
	if dropped := alone.Counts.DroppedByBound + both.Counts.DroppedByBound; dropped != 0 {
		t.Errorf("%d packets of pods without a bound were dropped by one", dropped)
	}
	// Four times as much by design.
	if alone.Sum <= bounded.Sum || beside.Pods[0].Payload <= beside.Pods[1].Payload {
		t.Errorf("a pod without a bound has no more than one with: alone %.1f and %.1f Mb/s, together %v", alone.Sum/1e6, bounded.Sum/1e6,
			beside.Pods)
	}
}

// attach three pods of one tenant on the first node, and one for each on the other.
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

// limit the PF as its cable would, in both directions.
func (c *crowd) limit(t *testing.T) {
	t.Helper()
	near, leaf := c.fabric.nodes[0], c.fabric.leaves[crowdedRail]
	for _, end := range []struct {
		namespace *testlab.Namespace
		face      string
	}{{near.Host, uplinkOf(crowdedRail)}, {leaf.Namespace, near.Rails[crowdedRail].LeafPort()}} {
		end.namespace.Run(t, "tc", "qdisc", "replace", "dev", end.face, "root", "tbf", "rate", fmt.Sprint(pfRate), "burst", "50kb",
			// A queue shorter than what the kernel lets Open vSwitch's socket have on its way: here it drops, and is counted.
			"limit", "100kb", "overhead", fmt.Sprint(framing))
	}
}

// phase in which these pods send as much as they can; out of the crowded PF, or in by it.
func (c *crowd) phase(t *testing.T, name string, out bool, flows ...flow) phase {
	t.Helper()
	before := c.count(t, out, flows)
	floods := make([]*flood, len(flows))
	for n, f := range flows {
		floods[n] = newFlood(t, f)
	}
	time.Sleep(c.warm)
	began, first := time.Now(), received(floods)
	time.Sleep(c.window)
	took, last := time.Since(began).Seconds(), received(floods)
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

// count what has passed so far.
func (c *crowd) count(t *testing.T, out bool, flows []flow) counts {
	t.Helper()
	near, leaf := c.fabric.nodes[0], c.fabric.leaves[crowdedRail]
	pf := look(t, near.Host, uplinkOf(crowdedRail))
	found := counts{ByPF: pf.out, DroppedByRate: pf.dropped}
	if !out {
		found.ByPF, found.DroppedByRate = pf.in, look(t, leaf.Namespace, near.Rails[crowdedRail].LeafPort()).dropped
	}
	found.DroppedByBound = near.metered(t, crowdedRail)
	for _, f := range flows {
		found.SentByPods = found.SentByPods.and(look(t, f.from.pod.Namespace, faceOf(crowdedRail)).out)
		found.GotByPods = found.GotByPods.and(look(t, f.to.pod.Namespace, faceOf(crowdedRail)).in)
	}
	return found
}

// since is what came after an earlier count.
func (c counts) since(before counts) counts {
	c.SentByPods, c.ByPF = c.SentByPods.less(before.SentByPods), c.ByPF.less(before.ByPF)
	c.GotByPods = c.GotByPods.less(before.GotByPods)
	c.DroppedByRate -= before.DroppedByRate
	c.DroppedByBound -= before.DroppedByBound
	return c
}

var droppedByBand = regexp.MustCompile(`\b0: packet_count:(\d+)`)

// metered away so far: packets that the meters of the rail's pods have dropped.
func (nd *node) metered(t *testing.T, rail int) (sum uint64) {
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

// check that all of the data went from the pods by the PF to the pods.
func (c counts) check(t *testing.T, name string) {
	t.Helper()
	const others = 200 // packets of BGP, ARP and ND
	if c.PayloadGot != c.PayloadSent || c.PayloadGot == 0 {
		t.Errorf("%s: of %d bytes that were sent %d arrived", name, c.PayloadSent, c.PayloadGot)
	}
	if c.GotByPods.Bytes < c.PayloadGot || c.GotByPods.Packets > c.ByPF.Packets+others || c.ByPF.Packets > c.SentByPods.Packets+others {
		t.Errorf("%s: the counters contradict each other: %+v", name, c)
	}
}
