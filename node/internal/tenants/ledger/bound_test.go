package ledger

import (
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// TestTenantPrefixesCountOnlyWithinPodPrefixes checks that a prefix that includes leaves and hosts by mistake makes
// none of them a member, also after a restart, and that the pods' part remains the tenant's.
func TestTenantPrefixesCountOnlyWithinPodPrefixes(t *testing.T) {
	prefixes := func(texts ...string) (parsed []netip.Prefix) {
		for _, text := range texts {
			parsed = append(parsed, netip.MustParsePrefix(text))
		}
		return parsed
	}
	pods := prefixes("10.1.0.0/16", "10.2.0.0/16", "fd00:1::/48")
	policy := tenants.Policy{Tenants: []tenants.Tenant{
		{Name: "red", Namespaces: []string{"a"}, Prefixes: prefixes("10.0.0.0/8", "fd00:1::/64", "192.0.2.0/31")},
	}}
	ledger := New("one", start)
	ledger.Bound(pods, start)
	learn := func() *tenants.Record {
		record := ledger.Record(start)
		ledger.Acked(record, start)
		shot := snapshot(record)
		shot.Policy = &policy
		ledger.Learn(shot, ledger.Published(), start)
		return record
	}
	learn()
	claim := claimOf("red", "10.1.0.1")
	if err := ledger.Begin(claim, start); err != nil {
		t.Fatal(err)
	}
	learn()
	record := learn()
	if blocked := ledger.Decide(claim, start); blocked != nil {
		t.Fatal(blocked)
	}
	restarted := Restore(ledger.Own(record), ledger.Known(), start)
	restarted.Bound(pods, start)
	want := []plan.Member{
		{Prefix: pods[0], Tenant: "red"}, {Prefix: pods[1], Tenant: "red"}, {Prefix: netip.MustParsePrefix("fd00:1::/64"), Tenant: "red"},
	}
	for _, l := range []*Ledger{ledger, restarted} {
		if view, _ := l.View([]string{"red"}, start); !slices.Equal(view.Members, want) {
			t.Errorf("members %v", view.Members)
		}
		hasProblem(t, l, "10.0.0.0/8 of tenant red exceeds the pods' prefixes of the rails here (10.1.0.0/16, 10.2.0.0/16, fd00:1::/48)")
		hasProblem(t, l, "192.0.2.0/31 of tenant red exceeds")
	}
}
