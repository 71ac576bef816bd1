package announce

import (
	"net/netip"
	"testing"
)

// TestNothingIsGoneBeforeASync checks that before the first Sync of a rail no prefix is withdrawn, whoever announced
// it.
func TestNothingIsGoneBeforeASync(t *testing.T) {
	t.Parallel()
	vty, err := NewVty(twoRails())
	if err != nil {
		t.Fatal(err)
	}
	here, away := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")
	table := &KernelTable{rails: map[string]*railTable{"rail0": {}, "rail1": {}}}
	for _, recorder := range []backend{vty, table} {
		if recorder.gone("rail0", away) {
			t.Errorf("%T: gone before any Sync", recorder)
		}
	}
	left := map[netip.Prefix]bool{here: true}
	vty.left["rail0"], table.rails["rail0"].left = left, left
	for _, recorder := range []backend{vty, table} {
		if recorder.gone("rail0", here) || !recorder.gone("rail0", away) || recorder.gone("rail1", away) {
			t.Errorf("%T: %v, %v and on a rail without a Sync %v, want false, true, false", recorder,
				recorder.gone("rail0", here), recorder.gone("rail0", away), recorder.gone("rail1", away))
		}
	}
}
