package plan

import (
	"cmp"
	"slices"
	"testing"

	"railwright/node/internal/attachment"
)

// TestPlannerAnswersAsFlows changes everything that flows depend on, and compares with a plan from nothing.
func TestPlannerAnswersAsFlows(t *testing.T) {
	rail := rail0
	rail.Marking = Marking{Policy: RefuseMarking, Allowed: []uint8{0, 26}, CNP: []uint8{48}}
	planner := NewPlanner(rail)
	attachments, ports, tenants := cluster(8, 20, 2, false)
	known := facts(ports)
	byKey := func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Match, b.Match))
	}
	for name, change := range map[string]func(){
		"nothing":   func() {},
		"a rate":    func() { attachments[1].MaxRate = 5e9 },
		"a MAC":     func() { attachments[2].MAC = attachment.MAC{2, 7, 7, 7, 7, 7} },
		"a port":    func() { ports[attachments[3].HostInterface] = 999 },
		"a pod":     func() { attachments = attachments[1:] },
		"a member":  func() { tenants.Members = tenants.Members[1:] },
		"a number":  func() { tenants.Numbers[attachments[0].Tenant] = 77 },
		"a leaf":    func() { known.LeafMAC = attachment.MAC{} },
		"a bridge":  func() { known.BridgeMAC = attachment.MAC{2, 8, 8, 8, 8, 8} },
		"answers":   func() { known.AnswersND = false },
		"no uplink": func() { known.UplinkPort = 0 },
	} {
		change()
		want, leftOver := Flows(rail, known, attachments, tenants)
		got, left := planner.Flows(known, attachments, tenants)
		slices.SortFunc(got, byKey)
		if !slices.Equal(got, want) || !slices.Equal(left, leftOver) {
			t.Errorf("after a change of %s: %d flows, want %d; left %v, want %v", name, len(got), len(want), left, leftOver)
		}
	}
}

// TestAttachmentsAreNotPlannedAgainForATenant changes only members, as a claim on another rail or node does.
func TestAttachmentsAreNotPlannedAgainForATenant(t *testing.T) {
	attachments, ports, tenants := cluster(4, 20, 2, false)
	planner := NewPlanner(rail0)
	planner.Flows(facts(ports), attachments, tenants)
	before := planner.endpoints.now
	tenants.Members = append(tenants.Members, members(attachments[0].Tenant, "10.77.0.1/32")...)
	planner.Flows(facts(ports), attachments, tenants)
	if len(before) != len(attachments) {
		t.Fatalf("%d attachments are kept", len(before))
	}
	for key, flows := range planner.endpoints.now {
		if &flows[0] != &before[key][0] {
			t.Errorf("attachment %d was planned again", key.number)
		}
	}
}
