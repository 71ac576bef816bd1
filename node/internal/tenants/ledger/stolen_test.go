package ledger

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// naming is a record of a node that names an address for a tenant.
func naming(node, address, tenant string, revision int64) *tenants.Record {
	return &tenants.Record{
		Node: node, Instance: "00000000", Generation: revision, Revision: revision,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr(address), Tenant: tenant}},
	}
}

func silent(node string) *tenants.Record {
	return &tenants.Record{Node: node, Instance: "00000000", Generation: 1, Revision: 1}
}

// membersOf a view with pods of all these tenants here.
func membersOf(ledger *Ledger) []plan.Member {
	view, _ := ledger.View([]string{"ns:a", "ns:evil"}, start)
	return view.Members
}

func member(address, tenant string) plan.Member {
	return plan.Member{Prefix: tenants.Host(netip.MustParseAddr(address)), Tenant: tenant}
}

func hasProblem(t *testing.T, ledger *Ledger, want string) {
	t.Helper()
	if told := ledger.Problems(start); !slices.ContainsFunc(told, func(problem string) bool { return strings.Contains(problem, want) }) {
		t.Errorf("%q is not told in %q", want, told)
	}
}

// TestAForeignLiveAddressCannotBeTaken: who writes another node's address into a record of his costs it nothing, neither
// at its own node nor at others, also over a restart of theirs.
func TestAForeignLiveAddressCannotBeTaken(t *testing.T) {
	live, evil := naming("live", "10.1.0.1", "ns:a", 1), silent("evil")
	ledger := New("one", start)
	publish(ledger, start, live, evil)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.2"), live, evil)
	want := []plan.Member{member("10.1.0.1", "ns:a"), member("10.1.0.2", "ns:a")}
	for step, address := range []string{"10.1.0.1", "10.1.0.2"} {
		evil = naming("evil", address, "ns:evil", int64(step+2))
		publish(ledger, start, live, evil)
		if found := membersOf(ledger); !slices.Equal(found, want) {
			t.Errorf("after a theft of %s: members %v", address, found)
		}
		hasProblem(t, ledger, "record evil.00000000 names "+address+" for tenant ns:evil")
	}
	evil = naming("evil", "10.1.0.1", "ns:evil", 4)
	own := publish(ledger, start, live, evil)
	again := Restore(ledger.Own(own), ledger.Known(), start)
	if found := membersOf(again); !slices.Equal(found, want) {
		t.Errorf("after a restart: members %v", found)
	}
	// The live one ends: what the other names is its to prove, as any claim.
	publish(ledger, start, silentAgain("live", 2), evil)
	if found := membersOf(ledger); !slices.Equal(found, []plan.Member{member("10.1.0.1", "ns:evil"), want[1]}) {
		t.Errorf("after the first one's end: members %v", found)
	}
}

func silentAgain(node string, revision int64) *tenants.Record {
	record := silent(node)
	record.Generation, record.Revision = revision, revision
	return record
}

// TestWhoWasFirstThatCannotBeToldIsNobody: a node that is new finds both.
func TestWhoWasFirstThatCannotBeToldIsNobody(t *testing.T) {
	ledger := New("one", start)
	publish(ledger, start, naming("live", "10.1.0.1", "ns:a", 1), naming("evil", "10.1.0.1", "ns:evil", 1))
	if found := membersOf(ledger); slices.ContainsFunc(found, func(member plan.Member) bool { return member.Tenant != "" }) {
		t.Errorf("members %v", found)
	}
	hasProblem(t, ledger, "10.1.0.1 is let in nowhere")
}
