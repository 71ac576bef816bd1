package openvswitch

import (
	"maps"
	"testing"

	"railwright/node/internal/plan"
)

// TestFlowsHaveTheMetersOfTheirRates: in kilobits, with a tenth of a second in the bucket, and none where there is no bound.
func TestFlowsHaveTheMetersOfTheirRates(t *testing.T) {
	t.Parallel()
	found := metersOf([]plan.Flow{{Rate: 5_000_000}, {Meter: 4, Rate: 8_000_000}, {Meter: 5, Rate: 1}, {Meter: 4, Rate: 8_000_000}})
	want := map[uint32]string{4: "rate=8000 burst_size=800", 5: "rate=1 burst_size=1"}
	if !maps.Equal(found, want) {
		t.Errorf("meters %v, want %v", found, want)
	}
}
