package ledger

import (
	"encoding/json"
	"net/netip"
	"testing"

	"railwright/node/internal/tenants"
)

// again gives a state as it comes back from the disk.
func again[T any](t *testing.T, state T) T {
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

// TestWhatIsOlderThanWhatWasSaidIsNotGoneBy: a node that has said that it saw a release must never act by what was
// before, whatever is left on its disk.
func TestWhatIsOlderThanWhatWasSaidIsNotGoneBy(t *testing.T) {
	ledger := New("one", start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a"}},
	}
	publish(ledger, start, two)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.1"), two)
	confirm(ledger, "ns:a", start)
	before := again(t, ledger.Known())
	next := *two
	next.Generation, next.Revision = 2, 2
	publish(ledger, start, &next)
	confirm(ledger, "ns:a", start)
	own, known := again(t, ledger.Own(ledger.Record(start))), again(t, ledger.Known())
	stranger, earlier := known, known
	stranger.ID, earlier.Checked = "one.ffffffff", known.Checked-1
	for name, try := range map[string]struct {
		known Known
		want  int
	}{
		"what was known then": {known, 2}, "older than what was seen": {before, 0}, "nothing": {Known{}, 0},
		"of another record": {stranger, 0}, "from before the last reading": {earlier, 0},
	} {
		restored := Restore(again(t, own), again(t, try.known), start)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != try.want {
			t.Errorf("%s: %v is let in", name, view.Members)
		}
		if blocked := restored.Decide(claimOf("ns:a", "10.1.0.1"), start); blocked != nil {
			t.Errorf("%s: what it held is not its own: %v", name, blocked)
		}
		publish(restored, start, &next)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != 2 {
			t.Errorf("%s: once read anew %v is let in", name, view.Members)
		}
	}
}

// TestNewsThatMayBeOlderThanTheDiskIsNotBelieved: after a restart the store may first tell what was long ago.
func TestNewsThatMayBeOlderThanTheDiskIsNotBelieved(t *testing.T) {
	ledger := New("one", start)
	two := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 2, Revision: 2,
		Released: []tenants.Released{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a", Generation: 2}},
	}
	publish(ledger, start, two)
	claimed(t, ledger, claimOf("ns:a", "10.1.0.1"), two)
	confirm(ledger, "ns:a", start)
	restored := Restore(again(t, ledger.Own(ledger.Record(start))), again(t, ledger.Known()), start)
	old := &tenants.Record{
		Node: "two", Instance: "00000000", Generation: 1, Revision: 1,
		Addresses: []tenants.Address{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a"}},
	}
	for _, published := range []tenants.Snapshot{snapshot(), snapshot(old)} {
		restored.Learn(published, 0, start)
		restored.Acked(restored.Record(start), start)
		if view, _ := restored.View([]string{"ns:a"}, start); len(view.Members) != 1 {
			t.Fatalf("%v is let in", view.Members)
		}
	}
}
