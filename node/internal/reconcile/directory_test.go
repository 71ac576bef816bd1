package reconcile

import (
	"net/netip"
	"testing"

	"railwright/node/internal/tenants"
)

// TestAClaimWakesItsOwnRailAlone attaches pods to one rail in turn. The other rail gets their addresses without a pass.
func TestAClaimWakesItsOwnRailAlone(t *testing.T) {
	bench := newBench(t).start()
	looks := func() (count int) {
		bench.sw.set(func() { count = bench.sw.looks["br1"] })
		return count
	}
	before := looks()
	const attached = 60
	for i := range attached {
		bench.mustAttach(1+i, bothParts...)
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
	// The readiness of both rails is not asked for here, so each look is a pass; the first claim adds the tenant.
	if looks()-before > 3 {
		t.Errorf("%d ADDs on one rail caused %d passes over the other", attached, looks()-before)
	}
	bench.eventually("both rails admit an address of another node", func() bool { return members() == attached+1 })
}
