package lab

import (
	"fmt"
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
	// What an Ethernet frame carries beside TCP's payload: its header with framing; IPv4, TCP and time stamps.
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
	back := func(one flow) flow { return flow{one.name, one.to, one.from} }
	alone := run.phase(t, "a alone", true, run.free).Sum
	otherAlone := run.phase(t, "b alone", true, run.other).Sum
	both := run.phase(t, "a and b", true, run.free, run.other)
	into := run.phase(t, "to a and b", false, back(run.free), back(run.other))
	bounded := run.phase(t, "c alone, bounded", true, run.bound)
	beside := run.phase(t, "a beside c, bounded", true, run.free, run.bound)
	railnode.Keep(t, run.record)
	// Also where others use the machine: less than the limit is the machine's doing; more than it by what waits in queues
	// while nobody reads the counters, which is a few hundredths of a second of the window.
	for what, sum := range map[string]float64{"a alone": alone, "b alone": otherAlone, "a and b": both.Sum, "to a and b": into.Sum,
		"a beside c": beside.Sum} {
		between(t, what, sum, 0.6*payloadLimit, 1.05*payloadLimit)
	}
	for _, together := range []phase{both, into} {
		for _, one := range together.Pods {
			between(t, "the share of "+one.Pod+", "+together.Name, one.Payload, 0.15*together.Sum, 0.85*together.Sum)
		}
	}
	between(t, "c alone", bounded.Sum, 0.3*boundRate, 1.1*boundRate)
	between(t, "c beside a", beside.Pods[1].Payload, 0.2*boundRate, 1.1*boundRate)
	between(t, "what c leaves to a", beside.Pods[0].Payload, 0.6*beside.Sum, payloadLimit)
}

func between(t *testing.T, what string, seen, least, most float64) {
	t.Helper()
	if seen < least || seen > most {
		t.Errorf("%s: %.1f Mb/s, expected %.1f to %.1f", what, seen/1e6, least/1e6, most/1e6)
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
	for n, one := range flows {
		floods[n] = newFlood(t, one)
	}
	time.Sleep(c.warm)
	began, first := time.Now(), received(floods)
	time.Sleep(c.window)
	took, last := time.Since(began).Seconds(), received(floods)
	made := phase{Name: name}
	for n, one := range flows {
		rate := 8 * float64(last[n]-first[n]) / took
		made.Pods = append(made.Pods, share{one.name, rate})
		made.Sum += rate
	}
	var sent, got uint64
	for _, one := range floods {
		sentByOne, gotByOne := one.stop(t)
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
	for _, one := range flows {
		found.SentByPods = found.SentByPods.and(look(t, one.from.pod.Namespace, faceOf(crowdedRail)).out)
		found.GotByPods = found.GotByPods.and(look(t, one.to.pod.Namespace, faceOf(crowdedRail)).in)
	}
	return found
}

// since is what came after an earlier count.
func (c counts) since(before counts) counts {
	c.SentByPods, c.ByPF = c.SentByPods.less(before.SentByPods), c.ByPF.less(before.ByPF)
	c.GotByPods = c.GotByPods.less(before.GotByPods)
	c.DroppedByRate -= before.DroppedByRate
	return c
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
