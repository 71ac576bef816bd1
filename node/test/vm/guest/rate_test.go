//go:build vmguest

package guest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	// maxRate is the rate limit of one of the pods. It is above what an emulated CPU forwards, because the rate itself
	// is not tested here.
	maxRate = "10Gb/s"
	// highRate is above what 32 bits of bytes per second hold, in which Open vSwitch before 3.2 passed it to tc.
	highRate = "100Gb/s"
	refused  = 100
	allowed  = 200
	// maxMisses is the maximum number of datapath misses while packets are refused: the first of them and the node's
	// other traffic.
	maxMisses = refused / 2
)

// refusesInHardware checks that the datapath drops the packets to another tenant from a pod with a rate limit too, and
// that it counts each once. A tc filter that ends with the policer would pass the packets to ovs-vswitchd and report
// all of the policer's packets as its own.
func (n *node) refusesInHardware(t *testing.T, limited, friend, stranger *pod) {
	t.Helper()
	policed := linesWith(testlab.Run(t, "tc", "filter", "show", "dev", limited.rail.representor(limited.vf), "ingress"),
		"police")
	if policed == "" {
		t.Errorf("no tc filter of %s has a policer", limited.rail.representor(limited.vf))
	}
	before, missed := limited.rail.refusedPackets(t), misses(t)
	output, _ := limited.Try("ping", "-c", strconv.Itoa(refused), "-i", "0.02", "-W", "1", stranger.addresses[0].String())
	if !strings.Contains(output, " 0 received, 100% packet loss") {
		t.Errorf("%s reaches another tenant, or ping failed:\n%s", limited.Name, output)
	}
	missed = misses(t) - missed
	metered := limited.rail.meteredPackets(t)
	if output, err := limited.Try("ping", "-q", "-c", strconv.Itoa(allowed), "-i", "0.02", "-W", "3",
		friend.addresses[0].String()); err != nil || !strings.Contains(output, " 0% packet loss") {
		t.Errorf("%s does not reach its own tenant:\n%s", limited.Name, output)
	}
	metered = limited.rail.meteredPackets(t) - metered
	counted := uint64(0)
	for until := time.Now().Add(10 * time.Second); counted != refused && time.Now().Before(until); {
		time.Sleep(betweenLooks) // ovs-vswitchd reads the datapath's counters twice a second
		counted = limited.rail.refusedPackets(t) - before
	}
	t.Logf("figure: %d packets of a pod with a rate to another tenant: %d counted as refused, %d misses of the datapath "+
		"meanwhile; then %d to its own tenant, and as many answers: its meters tell of %d (%s)", refused, counted, missed,
		allowed, metered, emulated)
	// ovs-vswitchd may have metered the first packets with its own meters.
	if metered < 2*allowed*9/10 || metered > 2*allowed {
		t.Errorf("meters counted %d of %d packets", metered, 2*allowed)
	}
	if counted != refused || missed > maxMisses {
		t.Errorf("%d packets to another tenant: %d counted, %d misses", refused, counted, missed)
	}
}

// policesAt checks the rate of the pod's policers in tc.
func (n *node) policesAt(t *testing.T, rate string) {
	t.Helper()
	told := testlab.Run(t, "tc", "actions", "list", "action", "police")
	want := "rate " + strings.ReplaceAll(rate, "Gb/s", "Gbit")
	if strings.Count(told, want) != 2 {
		t.Errorf("want a policer for each direction with %q:\n%s", want, told)
	}
}

var packetsWord = regexp.MustCompile(`n_packets=(\d+),.* priority=0 `)

// refusedPackets returns the number of packets between tenants that the rail's bridge has dropped.
func (r *rail) refusedPackets(t *testing.T) uint64 {
	t.Helper()
	output := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "dump-flows", r.bridge(), "table=30")
	return number(t, packetsWord, output)
}

var meteredWord = regexp.MustCompile(`meter:\d+ .*?packet_in_count:(\d+)`)

// meteredPackets returns the number of packets, sent and received, that the meters of the rail's pods have counted.
func (r *rail) meteredPackets(t *testing.T) (sum uint64) {
	t.Helper()
	output := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "meter-stats", r.bridge())
	found := meteredWord.FindAllStringSubmatch(output, -1)
	if len(found) != 2 {
		t.Fatalf("got %d meters, want one for each direction of one pod:\n%s", len(found), output)
	}
	for _, match := range found {
		count, err := strconv.ParseUint(match[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

var missedWord = regexp.MustCompile(`missed:(\d+)`)

// misses returns the number of packets that the datapath passed to ovs-vswitchd because it had no flow for them.
func misses(t *testing.T) uint64 {
	t.Helper()
	return number(t, missedWord, appctl(t, "dpctl/show"))
}

func number(t *testing.T, word *regexp.Regexp, output string) uint64 {
	t.Helper()
	found := word.FindAllStringSubmatch(output, -1)
	if len(found) != 1 {
		t.Fatalf("got %d matches of %q, want one, in:\n%s", len(found), word, output)
	}
	value, err := strconv.ParseUint(found[0][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
