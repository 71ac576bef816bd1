package ledger

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"railwright/node/internal/tenants"
)

var (
	start    = time.Unix(1000, 0)
	sequence uint64
)

func snapshot(records ...*tenants.Record) tenants.Snapshot {
	sequence++
	shot := tenants.Snapshot{Sequence: sequence, Records: map[string]*tenants.Record{}, Policy: &tenants.Policy{}}
	for _, record := range records {
		shot.Records[record.ID()] = record
	}
	return shot
}

// publish publishes the ledger's record and reads it back together with the others.
func publish(ledger *Ledger, now time.Time, others ...*tenants.Record) *tenants.Record {
	var record *tenants.Record
	for range 2 { // the first round announces the records in use
		record = ledger.Record(now)
		ledger.Acked(record, now)
		ledger.Learn(snapshot(append(others, record)...), ledger.Published(), now)
	}
	return record
}

func claimOf(tenant, address string) tenants.Claim {
	return tenants.Claim{Tenant: tenant, Owner: "o/" + address, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
}

func claimed(t *testing.T, ledger *Ledger, claim tenants.Claim, others ...*tenants.Record) {
	t.Helper()
	if err := ledger.Begin(claim, start); err != nil {
		t.Fatal(err)
	}
	publish(ledger, start, others...)
	if blocked := ledger.Decide(claim, start); blocked != nil {
		t.Fatal(blocked)
	}
}

func confirm(ledger *Ledger, local string, now time.Time) {
	_, version := ledger.View([]string{local}, now)
	ledger.Confirm(version, now)
}

// TestReleaseWaitsForUnknownNodes checks that a release waits for a node that the releasing node does not know yet,
// because that node may have read the earlier state.
func TestReleaseWaitsForUnknownNodes(t *testing.T) {
	ledger := New("one", start)
	publish(ledger, start)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.1"))
	ledger.Release(claimOf("ns:a", "10.1.0.1").Addresses, start)
	confirm(ledger, "ns:a", start)
	later := start.Add(2 * Drain)
	ledger.Acked(ledger.Record(later), later)
	confirm(ledger, "ns:a", later)
	ledger.Expire(later)
	if len(ledger.released) == 0 {
		t.Fatal("release was dropped before other nodes were read")
	}
	two := &tenants.Record{Node: "two", Instance: "00000000", Generation: 1, Revision: 1}
	record := publish(ledger, later, two)
	ledger.Expire(later)
	if len(record.Released) != 1 || len(ledger.released) == 0 {
		t.Fatal("release was dropped before a new node had seen it")
	}
	seen := *two
	seen.Revision, seen.Seen = 2, map[string]int64{record.ID(): record.Generation}
	publish(ledger, later, &seen)
	confirm(ledger, "ns:a", later)
	ledger.Expire(later)
	if len(ledger.released) > 0 {
		t.Error("release remains although all nodes have seen it")
	}
}

// TestUnknownRecordInUseBlocksClaims checks that a record that a node uses and nobody can find blocks claims, because
// its content is unknown.
func TestUnknownRecordInUseBlocksClaims(t *testing.T) {
	ledger := New("one", start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1, Seen: map[string]int64{"three.11111111": 4},
	}
	claim := claimOf("ns:a", "10.1.0.1")
	ledger.Learn(snapshot(), 0, start)
	if err := ledger.Begin(claim, start); err != nil {
		t.Fatal(err)
	}
	publish(ledger, start, two)
	if blocked := ledger.Decide(claim, start); blocked == nil || !errors.Is(blocked, tenants.ErrUnreachable) {
		t.Fatalf("%v", blocked)
	}
	for _, seen := range []map[string]int64{{"three.11111111": tenants.Gone}, {}} {
		now := *two
		two.Revision++
		now.Revision, now.Seen = two.Revision, seen
		publish(ledger, start, &now)
		if blocked := ledger.Decide(claim, start); blocked != nil {
			t.Fatalf("seen %v: %v", seen, blocked)
		}
	}
}

// TestRecordDeletedByHandBlocksItsAddresses checks that others cannot claim the addresses while a node uses the record.
func TestRecordDeletedByHandBlocksItsAddresses(t *testing.T) {
	ledger := New("one", start)
	three := &tenants.Record{
		Node: "three", Instance: "11111111", Generation: 1, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.1"), Tenant: "ns:a"}},
	}
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1, Seen: map[string]int64{three.ID(): 1},
	}
	publish(ledger, start, two, three)
	confirm(ledger, "ns:b", start)
	claim := claimOf("ns:b", "10.1.0.1")
	if err := ledger.Begin(claim, start); err != nil {
		t.Fatal(err)
	}
	publish(ledger, start, two)
	confirm(ledger, "ns:b", start)
	if blocked := ledger.Decide(claim, start); blocked == nil || !errors.Is(blocked, tenants.ErrNotReleased) {
		t.Fatalf("while two uses the record: %v", blocked)
	}
	if len(ledger.Problems(start)) == 0 {
		t.Error("no problem is reported")
	}
	let := *two
	let.Revision, let.Seen = 2, map[string]int64{}
	publish(ledger, start, &let)
	if blocked := ledger.Decide(claim, start); blocked != nil {
		t.Errorf("when no node uses the record: %v", blocked)
	}
}

// TestRecordIsRemovedOnceAllNodesStopUsingIt includes nodes that joined later.
func TestRecordIsRemovedOnceAllNodesStopUsingIt(t *testing.T) {
	ledger := New("one", start)
	three := &tenants.Record{Node: "three", Instance: "11111111", Generation: 1, Revision: 1}
	publish(ledger, start, three)
	confirm(ledger, "ns:a", start)
	leaving := *three
	leaving.Leaving = true
	ledger.Learn(snapshot(ledger.Record(start), &leaving), 0, start)
	confirm(ledger, "ns:a", start)
	if len(ledger.Departed(start)) > 0 {
		t.Fatal("removed before other nodes were read")
	}
	two := &tenants.Record{Node: "two", Instance: "00000000", Generation: 1, Revision: 1, Seen: map[string]int64{three.ID(): 1}}
	publish(ledger, start, two, &leaving)
	confirm(ledger, "ns:a", start)
	if len(ledger.Departed(start)) > 0 {
		t.Fatal("removed before two had stopped using it")
	}
	let := *two
	let.Revision, let.Seen = 2, map[string]int64{three.ID(): tenants.Gone}
	publish(ledger, start, &let, &leaving)
	confirm(ledger, "ns:a", start)
	if got := ledger.Departed(start); len(got) != 1 || got[0].ID() != three.ID() {
		t.Errorf("%v", got)
	}
}

// TestPrefixStaysPublishedWhileFlowsUseIt covers a prefix that the policy gives to nobody any more.
func TestPrefixStaysPublishedWhileFlowsUseIt(t *testing.T) {
	ledger := New("one", start)
	red := snapshot()
	red.Policy = &tenants.Policy{Tenants: []tenants.Tenant{{Name: "red", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}}
	ledger.Learn(red, 0, start)
	claim := claimOf("red", "10.1.0.1")
	if err := ledger.Begin(claim, start); err != nil {
		t.Fatal(err)
	}
	record := ledger.Record(start)
	ledger.Acked(record, start)
	with := snapshot(record)
	with.Policy = red.Policy
	ledger.Learn(with, ledger.Published(), start)
	if blocked := ledger.Decide(claim, start); blocked != nil {
		t.Fatal(blocked)
	}
	confirm(ledger, "red", start)
	ledger.Release(claim.Addresses, start)
	_, version := ledger.View(nil, start)
	later := start.Add(2 * Drain)
	ledger.Expire(later)
	if got := ledger.Record(later).Prefixes; len(got) != 1 {
		t.Fatalf("flows still use it, but it is not published: %v", got)
	}
	ledger.Confirm(version, later)
	ledger.Expire(later)
	if got := ledger.Record(later).Prefixes; len(got) != 0 {
		t.Errorf("nothing uses it, but it is published: %v", got)
	}
}

// TestViewVersionGrowsOnlyWithAdmittedAddresses checks that changes of other tenants do not change the version.
func TestViewVersionGrowsOnlyWithAdmittedAddresses(t *testing.T) {
	ledger := New("one", start)
	publish(ledger, start)
	_, first := ledger.View([]string{"ns:a"}, start)
	ledger.Confirm(first, start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 7, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.1"), Tenant: "ns:b"}},
	}
	publish(ledger, start, two)
	if _, version := ledger.View([]string{"ns:a"}, start); version != first {
		t.Errorf("version %d after %d for another tenant's address", version, first)
	}
	record := ledger.Record(start)
	if record.Seen[two.ID()] != 7 {
		t.Errorf("record without effect on the flows is not confirmed: %v", record.Seen)
	}
	more := *two
	more.Revision, more.Generation = 2, 8
	more.Addresses = append(more.Addresses, tenants.Address{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a"})
	publish(ledger, start, &more)
	view, version := ledger.View([]string{"ns:a"}, start)
	if version <= first || len(view.Members) != 1 || view.Members[0].Tenant != "ns:a" {
		t.Errorf("version %d after %d: %v", version, first, view)
	}
	record = ledger.Record(start)
	if record.Seen[two.ID()] == 8 {
		t.Error("confirmed before the flows had it")
	}
}
