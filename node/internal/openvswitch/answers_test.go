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

// TestAnswersToAFloodAreLimited checks that requests above the limit never reach ovs-vswitchd, and that the data of
// other pods still arrives completely.
func TestAnswersToAFloodAreLimited(t *testing.T) {
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
		t.Errorf("another limit is not reported: %v %v", differences, err)
	}
	floods, here, there := testlab.OpenWire(t, liar.namespace, "eth0"), testlab.OpenWire(t, first.namespace, "eth0"), testlab.OpenWire(t, second.namespace, "eth0")
	honest := testlab.IPv4(first.ipv4(), second.ipv4(), 17, 0, testlab.UDP(first.ipv4(), second.ipv4(), 7, 7, marker[:]))
	began := time.Now()
	for round := range rounds {
		for range each {
			floods.Send(t, arpRequest(liar))
			floods.Send(t, neighbourSolicitation(liar))
		}
		here.Send(t, testlab.Ether(gateway, first.MAC, testlab.EtherIPv4, honest))
		testlab.Eventually(t, "another pod's datagram arrives", func() bool { return there.Count(marked) == round+1 })
	}
	took := time.Since(began)
	answers := floods.Count(isAnswer)
	most := 2*rate + int(took.Seconds()*rate) // the bucket was full, and is refilled in whole milliseconds
	if answers == 0 || answers > most {
		t.Errorf("%d of %d requests in %v were answered, want at most %d", answers, 2*rounds*each, took, most)
	}
	if upcalls := countUpcalls(t, rail); upcalls > uint64(most) {
		t.Errorf("%d packets reached ovs-vswitchd, want at most %d", upcalls, most)
	}
	if _, err := rail.client.Replace(t.Context(), bridgeName, flows); err != nil {
		t.Error(err)
	}
	if made, err := rail.client.namedMeters(t.Context(), bridgeName); err != nil || made[answersMeter] != answersBand() {
		t.Errorf("limit was not restored: %v %v", made, err)
	}
}

func arpRequest(pod *labPod) []byte {
	return testlab.Ether(testlab.Broadcast, pod.MAC, testlab.EtherARP, testlab.ARP(1, pod.MAC, pod.ipv4(), attachment.MAC{}, pod.Gateways[0]))
}

func neighbourSolicitation(pod *labPod) []byte {
	solicited := netip.MustParseAddr("ff02::1:ff00:1")
	message := testlab.Discovery(pod.ipv6(), solicited, 135, 0, pod.Gateways[1], 1, pod.MAC)
	return testlab.Ether(attachment.MAC{0x33, 0x33, 0xff, 0, 0, 1}, pod.MAC, testlab.EtherIPv6, testlab.IPv6(pod.ipv6(), solicited, 58, 255, message))
}

// isAnswer reports whether the frame is an ARP reply or a neighbour advertisement of the gateway.
func isAnswer(frame []byte) bool {
	if len(frame) < 42 || !slices.Equal(frame[6:12], gateway[:]) {
		return false
	}
	return frame[12] == 8 && frame[13] == 6 && frame[21] == 2 || frame[12] == 0x86 && len(frame) > 54 && frame[20] == 58 && frame[54] == 136
}

// countUpcalls returns the number of requests that the meter passed, which are those that ovs-vswitchd handled.
func countUpcalls(t *testing.T, rail *lab) uint64 {
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
		t.Errorf("meter dropped none of %d packets", in)
	}
	return in - dropped
}
