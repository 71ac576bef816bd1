package ledger

import (
	"encoding/json"
	"net/netip"
	"testing"

	"railwright/node/internal/tenants"
)

// throughDisk returns a state as read back from disk.
func throughDisk[T any](t *testing.T, state T) T {
	t.Helper()
	content, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var read T
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// TestStateOlderThanPublishedIsNotUsed checks that a node that published that it saw a release never acts on the
// earlier state, whatever is left on its disk.
func TestStateOlderThanPublishedIsNotUsed(t *testing.T) {
	ledger := New("one", start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a"}},
	}
	publish(ledger, start, two)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.1"), two)
	confirm(ledger, "ns:a", start)
	before := throughDisk(t, ledger.Known())
	next := *two
	next.Generation, next.Revision = 2, 2
	publish(ledger, start, &next)
	confirm(ledger, "ns:a", start)
	own, known := throughDisk(t, ledger.Own(ledger.Record(start))), throughDisk(t, ledger.Known())
	stranger, earlier := known, known
	stranger.ID, earlier.Checked = "one.ffffffff", known.Checked-1
	for name, try := range map[string]struct {
		known Known
		want  int
	}{
		"current knowledge": {known, 2}, "older than published": {before, 0}, "nothing": {Known{}, 0},
		"of another record": {stranger, 0}, "before the last read": {earlier, 0},
	} {
		restored := Restore(throughDisk(t, own), throughDisk(t, try.known), start)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != try.want {
			t.Errorf("%s: admits %v", name, view.Members)
		}
		if blocked := restored.Decide(claimOf("ns:a", "10.1.0.1"), start); blocked != nil {
			t.Errorf("%s: lost its own claim: %v", name, blocked)
		}
		publish(restored, start, &next)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != 2 {
			t.Errorf("%s: after reading again admits %v", name, view.Members)
		}
	}
}

// TestStaleSnapshotAfterRestartIsIgnored covers stores that first return an old state after a restart.
func TestStaleSnapshotAfterRestartIsIgnored(t *testing.T) {
	ledger := New("one", start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 2, Revision: 2,
		Released: []tenants.Released{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a", Generation: 2}},
	}
	publish(ledger, start, two)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.1"), two)
	confirm(ledger, "ns:a", start)
	restored := Restore(throughDisk(t, ledger.Own(ledger.Record(start))), throughDisk(t, ledger.Known()), start)
	old := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a"}},
	}
	for _, published := range []tenants.Snapshot{snapshot(), snapshot(old)} {
		restored.Learn(published, 0, start)
		restored.Acked(restored.Record(start), start)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != 1 {
			t.Fatalf("admits %v", view.Members)
		}
	}
}
