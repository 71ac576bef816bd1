package reconcile

import (
	"net/netip"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// TestAClaimWakesItsOwnRailAlone attaches pods to one rail in turn. Passes over the other rail are shared by all claims
// within ownPause, and still give it the addresses.
func TestAClaimWakesItsOwnRailAlone(t *testing.T) {
	bench := newBench(t).start()
	time.Sleep(2 * ownPause)
	looks := func() (count int) {
		bench.sw.set(func() { count = bench.sw.looks["br1"] })
		return count
	}
	before, began := looks(), time.Now()
	const attached = 60
	for i := range attached {
		bench.mustAttach(1+i, bothParts...)
	}
	// The readiness of both rails is not asked for here, so each look is a pass.
	if most := int(time.Since(began)/ownPause) + 2; looks()-before > most {
		t.Errorf("%d ADDs on one rail within %v caused %d passes over the other, want at most %d", attached, time.Since(began), looks()-before, most)
	}
	members := func() (count int) {
		bench.sw.set(func() {
			for _, flow := range bench.sw.flows["br1"] {
				if flow.Priority == 132 && flow.Table == 20 {
					count++
				}
			}
		})
		return count
	}
	bench.eventually("the other rail admits the addresses", func() bool { return members() == attached })
	bench.directory.change(func() {
		bench.directory.owners[netip.MustParseAddr("10.1.9.9")] = tenants.Claim{Tenant: "ns:tenant-a"}
	})
	bench.eventually("both rails admit an address of another node", func() bool { return members() == attached+1 })
}

func TestViewsThatDifferElsewhere(t *testing.T) {
	t.Parallel()
	member := func(text string) plan.Member { return plan.Member{Prefix: netip.MustParsePrefix(text), Tenant: "a"} }
	own := func(address netip.Addr) bool { return address == netip.MustParseAddr("10.1.0.1") }
	old := plan.Tenants{Members: []plan.Member{member("10.1.0.2/32")}}
	for name, test := range map[string]struct {
		view plan.Tenants
		want bool
	}{
		"nothing":   {old, false},
		"own":       {plan.Tenants{Members: []plan.Member{member("10.1.0.1/32"), member("10.1.0.2/32")}}, false},
		"foreign":   {plan.Tenants{Members: []plan.Member{member("10.1.0.2/32"), member("10.1.0.3/32")}}, true},
		"lost":      {plan.Tenants{}, true},
		"prefix":    {plan.Tenants{Members: []plan.Member{member("10.1.0.0/24"), member("10.1.0.2/32")}}, true},
		"a peering": {plan.Tenants{Members: old.Members, Pairs: [][2]string{{"a", "b"}}}, true},
	} {
		if got := changedElsewhere(old, test.view, own); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
