package reconcile

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsNotWellOrCannotBeLookedAtIsNotReady on either rail, and the rights of the process count for all.
func TestWhatIsNotWellOrCannotBeLookedAtIsNotReady(t *testing.T) {
	bench := newBench(t).start()
	var lacking []string
	bench.rights = func() []string { return lacking }
	expect := func(want ...string) {
		t.Helper()
		problems := bench.Ready()
		if len(problems) != len(want) {
			t.Errorf("told %q, wanted %q", problems, want)
			return
		}
		for i, part := range want {
			if !strings.Contains(problems[i], part) {
				t.Errorf("%q does not tell %q", problems[i], part)
			}
		}
	}
	expect()
	lacking = []string{"the capability NET_ADMIN is missing"}
	expect("NET_ADMIN is missing")
	if problems := bench.Problems(); !slices.Contains(problems, lacking[0]) {
		t.Errorf("STATUS does not tell it: %q", problems)
	}
	lacking = nil
	bench.directory.change(func() { bench.directory.stopped = []string{"the tenant directory cannot be reached"} })
	expect("the tenant directory cannot be reached")
	if problems := bench.Problems(); len(problems) != 1 {
		t.Errorf("STATUS tells %q", problems)
	}
	bench.directory.change(func() { bench.directory.stopped = nil })
	if problems, notes := bench.Problems(), bench.Notes(); len(problems) != 0 || len(notes) != 1 {
		t.Errorf("one faulty tenant stops all others: %q; notes %q", problems, notes)
	}
	bench.routes.set(func() { bench.routes.away = errors.New("bgpd hangs") })
	expect("rail rail0: BGP: bgpd hangs", "rail rail1: BGP: bgpd hangs")
	bench.routes.set(func() { bench.routes.away = nil })
	expect()
	bench.links = downLinks{}
	expect("rail rail0: uplink p0: it is away", "rail rail1: uplink p1 has no carrier")
}

// downLinks are not there, or have no carrier.
type downLinks struct{ fakeLinks }

func (downLinks) Up(name string) (bool, error) {
	if name == "p0" {
		return false, errors.New("it is away")
	}
	return false, nil
}

// TestAHostWithAnAddressAmongThePodsTakesNoPod on that rail: the address would be a pod's, on this node or another.
func TestAHostWithAnAddressAmongThePodsTakesNoPod(t *testing.T) {
	bench := newBench(t).start()
	live := bench.mustAttach(1, bothParts...)
	bench.links = mixedLinks{own: []string{"10.1.0.77 (lo)"}}
	problem := "10.1.0.77 (lo) of this host lies in the pods' prefixes of rail rail0"
	if _, err := bench.attach(sampleAttachment(2, bothParts...)); err == nil || !strings.Contains(err.Error(), problem) {
		t.Errorf("%v", err)
	}
	if ready := bench.Ready(); len(ready) == 0 || !strings.Contains(ready[0], problem) {
		t.Errorf("%q", ready)
	}
	if problems := bench.Rails(t.Context(), "rail0")[0].Problems; len(problems) != 1 || !strings.Contains(problems[0], problem) {
		t.Errorf("%q", problems)
	}
	if bench.sw.flowsOf(live.Number) == 0 {
		t.Error("who lived there before has lost its flows")
	}
	bench.links = mixedLinks{err: errors.New("the kernel does not answer")}
	if _, err := bench.attach(sampleAttachment(2, bothParts...)); err == nil || !strings.Contains(err.Error(), "the kernel does not answer") {
		t.Errorf("%v", err)
	}
	bench.links = fakeLinks{}
	bench.mustAttach(2, bothParts...)
}

// mixedLinks have addresses in each prefix.
type mixedLinks struct {
	fakeLinks
	own []string
	err error
}

func (m mixedLinks) Within([]netip.Prefix) ([]string, error) { return m.own, m.err }
