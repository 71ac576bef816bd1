package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
)

// retire removes rail0 from the configuration while the daemon is down.
func (bn *bench) retire() *bench {
	bn.t.Helper()
	bn.stop()
	bn.without = "rail0"
	return bn.start()
}

// TestDELCleansARetiredRail checks that pods keep their state until their DEL, and that nothing is left afterwards.
func TestDELCleansARetiredRail(t *testing.T) {
	bench := newBench(t).start()
	first, second := bench.mustAttach(1, bothParts...), bench.mustAttach(2, bothParts...)
	bench.retire()
	if bench.sw.flowsOf(first.Number) == 0 || !bench.routes.tables["rail0"].hasAll(first.Prefixes()) {
		t.Error("live pod lost flows or routes")
	}
	_, err := bench.attach(sampleAttachment(3, bothParts...))
	expectKind(t, err, NoRail)
	if !strings.Contains(err.Error(), "rail rail0, which is no longer configured") {
		t.Error(err)
	}
	bench.mustDetach(1, bothParts...)
	bench.eventually("deleted pod leaves nothing", func() bool { return bench.nothingLeft(first) })
	if bench.sw.flowsOf(second.Number) == 0 {
		t.Error("other pod lost its flows")
	}
	if states := bench.Rails(t.Context(), ""); len(states) != 1 || states[0].Name != "rail1" {
		t.Errorf("STATUS reports %v", states)
	}
	if listed := bench.List(t.Context()); len(listed) != 1 || !listed[0].Counted || listed[0].FlowsInstalled == 0 {
		t.Errorf("listed %+v", listed)
	}
	bench.mustDetach(2, bothParts...)
	bench.eventually("empty bridge of the forgotten rail", func() bool {
		return bench.nothingLeft(second) && bench.bridgeIsEmpty() && slices.Contains(bench.diary.all(), "forget rail0")
	})
}

func (bn *bench) bridgeIsEmpty() (empty bool) {
	bn.sw.set(func() { empty = len(bn.sw.flows["br0"]) == 0 })
	return empty
}

// TestRetiredRailWithoutUplinkOrBridgeReleasesAddresses covers rails that were retired because their NIC is gone.
func TestRetiredRailWithoutUplinkOrBridgeReleasesAddresses(t *testing.T) {
	for _, missing := range []error{openvswitch.ErrNoUplink, openvswitch.ErrNoBridge} {
		t.Run(missing.Error(), func(t *testing.T) {
			bench := newBench(t).start()
			att := bench.mustAttach(1, bothParts...)
			bench.stop()
			bench.sw.set(func() {
				bench.sw.missing = fmt.Errorf("%w: br0", missing)
				if errors.Is(missing, openvswitch.ErrNoBridge) {
					bench.sw.flows["br0"] = map[plan.Key]plan.Flow{}
				}
			})
			bench.without = "rail0"
			bench.start()
			bench.mustDetach(1, bothParts...)
			bench.eventually("attachment is undone", func() bool { return bench.nothingLeft(att) && bench.bridgeIsEmpty() })
		})
	}
}

// TestUnknownRailKeepsItsAddresses checks that its addresses stay taken until a reboot, because its flows cannot be
// removed.
func TestUnknownRailKeepsItsAddresses(t *testing.T) {
	bench := newBench(t).start()
	att := bench.mustAttach(1, bothParts...)
	bench.stop()
	bench.without, bench.unknown = "rail0", true
	bench.start()
	bench.mustDetach(1, bothParts...)
	if _, there := bench.store.Get(att.Key); !there || bench.diary.count("release 10.1.0.1") != 0 {
		t.Error("address was released while its flows remain", bench.diary.all())
	}
	bench.stop()
	bench.pods.boot = "boot-2"
	bench.start()
	bench.eventually("address is released", func() bool { return bench.diary.count("release 10.1.0.1") == 1 })
}
