package openvswitch

import (
	"maps"
	"testing"

	"railwright/node/internal/plan"
)

// TestMetersOfFlows checks that meters are in kilobits with a bucket of a tenth of a second, and that flows without a
// rate have none.
func TestMetersOfFlows(t *testing.T) {
	t.Parallel()
	found := metersOf([]plan.Flow{{Rate: 5_000_000}, {Meter: 4, Rate: 8_000_000}, {Meter: 5, Rate: 1}, {Meter: 4, Rate: 8_000_000}})
	want := map[uint32]string{4: "rate=8000 burst_size=800", 5: "rate=1 burst_size=1"}
	if !maps.Equal(found, want) {
		t.Errorf("meters %v, want %v", found, want)
	}
}
