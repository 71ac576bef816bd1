package reconcile

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsNotWellOrCannotBeLookedAtIsNotReady on either rail, and the rights of the process count for all.
func TestWhatIsNotWellOrCannotBeLookedAtIsNotReady(t *testing.T) {
	bench := newBench(t).start()
	var lacking []string
	bench.rights = func() []string { return lacking }
	expect := func(wanted ...string) {
		t.Helper()
		told := bench.Ready()
		if len(told) != len(wanted) {
			t.Errorf("told %q, wanted %q", told, wanted)
			return
		}
		for i, part := range wanted {
			if !strings.Contains(told[i], part) {
				t.Errorf("%q does not tell %q", told[i], part)
			}
		}
	}
	expect()
	lacking = []string{"the capability NET_ADMIN is missing"}
	expect("NET_ADMIN is missing")
	if told := bench.Problems(); !slices.Contains(told, lacking[0]) {
		t.Errorf("STATUS does not tell it: %q", told)
	}
	lacking = nil
	bench.directory.change(func() { bench.directory.stopped = []string{"the tenant directory cannot be reached"} })
	expect("the tenant directory cannot be reached")
	if told := bench.Problems(); len(told) != 1 {
		t.Errorf("STATUS tells %q", told)
	}
	bench.directory.change(func() { bench.directory.stopped = nil })
	if told, notes := bench.Problems(), bench.Notes(); len(told) != 0 || len(notes) != 1 {
		t.Errorf("one faulty tenant stops all others: %q; notes %q", told, notes)
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
