package openvswitch

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

// TestAPodThatAsksWithoutEndIsAnsweredWithinABound: what is above never comes to ovs-vswitchd, and the data of other pods
// gets through, all of it.
func TestAPodThatAsksWithoutEndIsAnsweredWithinABound(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	liar, first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "b"), rail.addPod(t, 4, "b")
	for _, pod := range rail.pods {
		rail.member(pod.Tenant, pod.Addresses...)
	}
	flows := rail.program(t)
	if made, err := rail.client.namedMeters(t.Context(), bridgeName); err != nil || made[answersMeter] != answersBand() {
		t.Fatalf("meters %v: %v", made, err)
	}
	const rate, rounds, each = 20, 100, 10
	rail.open.Ofctl(t, bridgeName, "mod-meter", "meter=slowpath,pktps,burst,stats,bands=type=drop,rate=20,burst_size=20")
	if differences, err := rail.client.Differences(t.Context(), bridgeName, flows); err != nil || len(differences) != 1 || !strings.Contains(differences[0], answersMeter) {
		t.Errorf("another bound is no difference: %v %v", differences, err)
	}
	floods, here, there := testlab.OpenWire(t, liar.namespace, "eth0"), testlab.OpenWire(t, first.namespace, "eth0"), testlab.OpenWire(t, second.namespace, "eth0")
	honest := testlab.IPv4(first.ipv4(), second.ipv4(), 17, 0, testlab.UDP(first.ipv4(), second.ipv4(), 7, 7, marker[:]))
	began := time.Now()
	for round := range rounds {
		for range each {
			floods.Send(t, asksARP(liar))
			floods.Send(t, asksND(liar))
		}
		here.Send(t, testlab.Ether(gateway, first.MAC, testlab.EtherIPv4, honest))
		testlab.Eventually(t, "another pod's datagram arrives", func() bool { return there.Count(marked) == round+1 })
	}
	took := time.Since(began)
	answers := floods.Count(answersPod)
	most := 2*rate + int(took.Seconds()*rate) // the bucket was full, and is filled by whole milliseconds
	if answers == 0 || answers > most {
		t.Errorf("%d of %d questions in %v were answered; at most %d may be", answers, 2*rounds*each, took, most)
	}
	if upcalls := answered(t, rail); upcalls > uint64(most) {
		t.Errorf("%d packets came to ovs-vswitchd, of which %d may", upcalls, most)
	}
	if _, err := rail.client.Replace(t.Context(), bridgeName, flows); err != nil {
		t.Error(err)
	}
	if made, err := rail.client.namedMeters(t.Context(), bridgeName); err != nil || made[answersMeter] != answersBand() {
		t.Errorf("the bound is not made anew: %v %v", made, err)
	}
}

func asksARP(pod *labPod) []byte {
	return testlab.Ether(testlab.Broadcast, pod.MAC, testlab.EtherARP, testlab.ARP(1, pod.MAC, pod.ipv4(), attachment.MAC{}, pod.Gateways[0]))
}

func asksND(pod *labPod) []byte {
	solicited := netip.MustParseAddr("ff02::1:ff00:1")
	message := testlab.Discovery(pod.ipv6(), solicited, 135, 0, pod.Gateways[1], 1, pod.MAC)
	return testlab.Ether(attachment.MAC{0x33, 0x33, 0xff, 0, 0, 1}, pod.MAC, testlab.EtherIPv6, testlab.IPv6(pod.ipv6(), solicited, 58, 255, message))
}

// answersPod: ARP, or a neighbour's advertisement, by the gateway.
func answersPod(frame []byte) bool {
	if len(frame) < 42 || !slices.Equal(frame[6:12], gateway[:]) {
		return false
	}
	return frame[12] == 8 && frame[13] == 6 && frame[21] == 2 || frame[12] == 0x86 && len(frame) > 54 && frame[20] == 58 && frame[54] == 136
}

// answered questions, by what the meter let through: each is one that ovs-vswitchd handled itself.
func answered(t *testing.T, rail *lab) uint64 {
	t.Helper()
	stats := rail.open.Ofctl(t, bridgeName, "meter-stats", "meter="+answersMeter)
	number := func(after string) uint64 {
		_, rest, _ := strings.Cut(stats, after)
		digits, _, _ := strings.Cut(strings.Fields(rest + " ")[0], " ")
		found, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", stats, err)
		}
		return found
	}
	in, dropped := number("packet_in_count:"), number("0: packet_count:")
	if dropped == 0 {
		t.Errorf("the meter dropped nothing of %d", in)
	}
	return in - dropped
}
