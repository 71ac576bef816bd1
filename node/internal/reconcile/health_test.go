package reconcile

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/openvswitch"
)

// TestUnhealthyOrUnknownIsNotReady checks both rails and the rights of the process.
func TestUnhealthyOrUnknownIsNotReady(t *testing.T) {
	bench := newBench(t).start()
	var lacking []string
	bench.rights = func() []string { return lacking }
	expect := func(want ...string) {
		t.Helper()
		problems := bench.ReadinessProblems()
		if len(problems) != len(want) {
			t.Errorf("got %q, want %q", problems, want)
			return
		}
		for i, part := range want {
			if !strings.Contains(problems[i], part) {
				t.Errorf("got %q, want %q", problems[i], part)
			}
		}
	}
	expect()
	lacking = []string{"the capability NET_ADMIN is missing"}
	expect("NET_ADMIN is missing")
	if problems := bench.Problems(); !slices.Contains(problems, lacking[0]) {
		t.Errorf("missing from STATUS: %q", problems)
	}
	lacking = nil
	bench.directory.change(func() { bench.directory.stopped = []string{"the tenant directory cannot be reached"} })
	expect("the tenant directory cannot be reached")
	if problems := bench.Problems(); len(problems) != 1 {
		t.Errorf("STATUS reports %q", problems)
	}
	bench.directory.change(func() { bench.directory.stopped = nil })
	if problems, notes := bench.Problems(), bench.Notes(); len(problems) != 0 || len(notes) != 1 {
		t.Errorf("faulty tenant is a problem for all: %q; notes %q", problems, notes)
	}
	bench.routes.set(func() { bench.routes.away = errors.New("bgpd hangs") })
	expect("rail rail0: BGP: bgpd hangs", "rail rail1: BGP: bgpd hangs")
	bench.routes.set(func() { bench.routes.away = nil })
	expect()
	bench.links = downLinks{}
	expect("rail rail0: uplink p0: it is away", "rail rail1: uplink p1 has no carrier")
}

// downLinks has no p0, and no carrier on the others.
type downLinks struct{ fakeLinks }

func (downLinks) Up(name string) (bool, error) {
	if name == "p0" {
		return false, errors.New("it is away")
	}
	return false, nil
}

// TestHostAddressInPodPrefixesStopsADD checks that such a rail takes no pod: the address could belong to a pod here or
// elsewhere.
func TestHostAddressInPodPrefixesStopsADD(t *testing.T) {
	bench := newBench(t).start()
	live := bench.mustAttach(1, bothParts...)
	bench.links = mixedLinks{addresses: []string{"10.1.0.77 (lo)"}}
	problem := "host address 10.1.0.77 (lo) is in the pods' prefixes of rail rail0"
	if _, err := bench.attach(sampleAttachment(2, bothParts...)); err == nil || !strings.Contains(err.Error(), problem) {
		t.Errorf("%v", err)
	}
	if ready := bench.ReadinessProblems(); len(ready) == 0 || !strings.Contains(ready[0], problem) {
		t.Errorf("%q", ready)
	}
	if problems := bench.Rails(t.Context(), "rail0")[0].Problems; len(problems) != 1 || !strings.Contains(problems[0], problem) {
		t.Errorf("%q", problems)
	}
	if bench.sw.flowsOf(live.Number) == 0 {
		t.Error("existing pod lost its flows")
	}
	bench.links = mixedLinks{err: errors.New("kernel does not reply")}
	if _, err := bench.attach(sampleAttachment(2, bothParts...)); err == nil || !strings.Contains(err.Error(), "kernel does not reply") {
		t.Errorf("%v", err)
	}
	bench.links = fakeLinks{}
	bench.mustAttach(2, bothParts...)
}

// mixedLinks has host addresses in each prefix.
type mixedLinks struct {
	fakeLinks
	addresses []string
	err       error
}

func (m mixedLinks) Within([]netip.Prefix) ([]string, error) { return m.addresses, m.err }

// TestARailThatIsDownIsReportedUntilItReturns takes bgpd away, and later the bridge of a rail.
func TestARailThatIsDownIsReportedUntilItReturns(t *testing.T) {
	bench := newBench(t).start()
	bench.eventually("the rails are up", func() bool { return bench.node.down() == 0 })
	bench.routes.set(func() { bench.routes.away = errors.New("bgpd does not reply") })
	bench.eventually("both rails are reported", func() bool { return bench.node.down() >= 2 })
	bench.routes.set(func() { bench.routes.away = nil })
	bench.eventually("the rails are up again", func() bool { return bench.node.down() == 0 })
	bench.sw.set(func() { bench.sw.missing = errors.New("no bridge br0") })
	bench.sw.events <- openvswitch.Event{Bridge: "br0", Reason: "changed"}
	bench.eventually("one rail is reported", func() bool { return bench.node.down() == 1 })
}
