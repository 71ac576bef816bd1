package openvswitch

import (
	"errors"
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

// TestRatesThatThePolicerWrapsAreRefused checks the versions before and after the fix of Open vSwitch.
func TestRatesThatThePolicerWrapsAreRefused(t *testing.T) {
	t.Parallel()
	for version, fails := range map[string]bool{
		"ovs-vswitchd (Open vSwitch) 2.17.9": true, "ovs-vswitchd (Open vSwitch) 3.1.0": true, "": true,
		"ovs-vswitchd (Open vSwitch) 3.2.0": false, "ovs-vswitchd (Open vSwitch) 3.10.1": false, "ovs-vswitchd (Open vSwitch) 4.0.0": false,
	} {
		if err := checkPoliced(version, 100e9); errors.Is(err, ErrRate) != fails {
			t.Errorf("%q: %v", version, err)
		}
	}
}
