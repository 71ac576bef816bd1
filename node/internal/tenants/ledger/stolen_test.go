package ledger

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// recordWith returns a node's record that names an address for a tenant.
func recordWith(node, address, tenant string, revision int64) *tenants.Record {
	return &tenants.Record{
		Node: node, Instance: "00000000", Generation: revision, Revision: revision,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr(address), Tenant: tenant}},
	}
}

func emptyRecord(node string) *tenants.Record {
	return &tenants.Record{Node: node, Instance: "00000000", Generation: 1, Revision: 1}
}

// membersOf returns the members of a view with pods of all these tenants.
func membersOf(ledger *Ledger) []plan.Member {
	view, _ := ledger.View([]string{"ns:a", "ns:evil"}, start)
	return view.Members
}

func member(address, tenant string) plan.Member {
	return plan.Member{Prefix: tenants.Host(netip.MustParseAddr(address)), Tenant: tenant}
}

func hasProblem(t *testing.T, ledger *Ledger, want string) {
	t.Helper()
	if problems := ledger.Problems(start); !slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, want) }) {
		t.Errorf("%q is not reported in %q", want, problems)
	}
}

// TestLiveAddressOfAnotherNodeCannotBeTaken checks that a node that writes another node's address into its record takes
// it from nobody, at that node or at others, also after a restart.
func TestLiveAddressOfAnotherNodeCannotBeTaken(t *testing.T) {
	live, evil := recordWith("live", "10.1.0.1", "ns:a", 1), emptyRecord("evil")
	ledger := New("one", start)
	publish(ledger, start, live, evil)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.2"), live, evil)
	want := []plan.Member{member("10.1.0.1", "ns:a"), member("10.1.0.2", "ns:a")}
	for step, address := range []string{"10.1.0.1", "10.1.0.2"} {
		evil = recordWith("evil", address, "ns:evil", int64(step+2))
		publish(ledger, start, live, evil)
		if found := membersOf(ledger); !slices.Equal(found, want) {
			t.Errorf("after a theft of %s: members %v", address, found)
		}
		hasProblem(t, ledger, "record evil.00000000 names "+address+" for tenant ns:evil")
	}
	evil = recordWith("evil", "10.1.0.1", "ns:evil", 4)
	record := publish(ledger, start, live, evil)
	again := Restore(ledger.Own(record), ledger.Known(), start)
	if found := membersOf(again); !slices.Equal(found, want) {
		t.Errorf("after a restart: members %v", found)
	}
	// After the live record ends, the other node's entry counts like any claim.
	publish(ledger, start, emptyRecordAt("live", 2), evil)
	if found := membersOf(ledger); !slices.Equal(found, []plan.Member{member("10.1.0.1", "ns:evil"), want[1]}) {
		t.Errorf("after the end of the live record: members %v", found)
	}
}

func emptyRecordAt(node string, revision int64) *tenants.Record {
	record := emptyRecord(node)
	record.Generation, record.Revision = revision, revision
	return record
}

// TestAddressWithUnknownFirstHolderBelongsToNobody has a new node that finds both records.
func TestAddressWithUnknownFirstHolderBelongsToNobody(t *testing.T) {
	ledger := New("one", start)
	publish(ledger, start, recordWith("live", "10.1.0.1", "ns:a", 1), recordWith("evil", "10.1.0.1", "ns:evil", 1))
	if found := membersOf(ledger); slices.ContainsFunc(found, func(member plan.Member) bool { return member.Tenant != "" }) {
		t.Errorf("members %v", found)
	}
	hasProblem(t, ledger, "10.1.0.1 is not admitted")
}
