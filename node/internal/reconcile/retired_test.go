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

// retire rail0 while the daemon is not there.
func (bn *bench) retire() *bench {
	bn.t.Helper()
	bn.stop()
	bn.without = "rail0"
	return bn.start()
}

// TestADELCleansARailThatIsOutOfTheConfiguration: pods keep what they have until their DEL, and then nothing is left.
func TestADELCleansARailThatIsOutOfTheConfiguration(t *testing.T) {
	bench := newBench(t).start()
	first, two := bench.mustAttach(1, bothParts...), bench.mustAttach(2, bothParts...)
	bench.retire()
	if bench.sw.flowsOf(first.Number) == 0 || !bench.routes.tables["rail0"].has(first.Prefixes()) {
		t.Error("a pod that runs has lost what it had")
	}
	_, err := bench.attach(sampleAttachment(3, bothParts...))
	expectKind(t, err, NoRail)
	if !strings.Contains(err.Error(), "rail rail0, which was taken out of the configuration") {
		t.Error(err)
	}
	bench.mustDetach(1, bothParts...)
	if !bench.nothingLeft(first) {
		t.Error("something is left of the one that was deleted", bench.diary.all())
	}
	if bench.sw.flowsOf(two.Number) == 0 {
		t.Error("the other one has lost its flows")
	}
	if states := bench.Rails(t.Context(), ""); len(states) != 1 || states[0].Name != "rail1" {
		t.Errorf("STATUS tells of %v", states)
	}
	if listed := bench.List(t.Context()); len(listed) != 1 || !listed[0].Counted || listed[0].FlowsInstalled == 0 {
		t.Errorf("listed %+v", listed)
	}
	bench.mustDetach(2, bothParts...)
	bench.eventually("nothing at all is left on its bridge, and it is forgotten", func() bool {
		return bench.nothingLeft(two) && bench.bridgeIsEmpty() && slices.Contains(bench.diary.all(), "forget rail0")
	})
}

func (bn *bench) bridgeIsEmpty() (empty bool) {
	bn.sw.set(func() { empty = len(bn.sw.flows["br0"]) == 0 })
	return empty
}

// TestARetiredRailWithoutUplinkOrBridgeHoldsNoAddress: it is often taken out because its NIC is gone.
func TestARetiredRailWithoutUplinkOrBridgeHoldsNoAddress(t *testing.T) {
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
			bench.eventually("it is undone", func() bool { return bench.nothingLeft(att) && bench.bridgeIsEmpty() })
		})
	}
}

// TestARailThatNobodyKnowsKeepsItsAddresses until the machine was restarted: what it has cannot be undone.
func TestARailThatNobodyKnowsKeepsItsAddresses(t *testing.T) {
	bench := newBench(t).start()
	att := bench.mustAttach(1, bothParts...)
	bench.stop()
	bench.without, bench.unknown = "rail0", true
	bench.start()
	bench.mustDetach(1, bothParts...)
	if _, there := bench.store.Get(att.Key); !there || bench.diary.count("release 10.1.0.1") != 0 {
		t.Error("the address was given to others though its flows are there", bench.diary.all())
	}
	bench.stop()
	bench.pods.boot = "boot-2"
	bench.start()
	bench.eventually("it is released", func() bool { return bench.diary.count("release 10.1.0.1") == 1 })
}
