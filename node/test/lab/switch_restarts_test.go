package lab

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// switchRestarts that were measured with one release of FRR.
type switchRestarts struct {
	FRR testlab.FRRVersion `json:"frr"`
	// FastExternalFailover is what FRR does by default, and the configuration that nodes are given forbids: a session
	// ends with its interface.
	FastExternalFailover bool `json:"fast_external_failover"`
	// ActiveLeaves open the session as nodes do, which is FRR's default; the configuration that leaves are given forbids it.
	ActiveLeaves bool            `json:"active_leaves"`
	Restarts     []switchRestart `json:"restarts"`
}

// switchRestart is one kill of ovs-vswitchd and its start at once; times in seconds, the first two from the kill.
type switchRestart struct {
	// Away until it took flows on all rails.
	Away float64 `json:"away_s"`
	// Ready by the daemon's own word.
	Ready float64 `json:"ready_s"`
	// Near and Far are the longest outages of pods of one node and of two.
	Near float64 `json:"near_s"`
	Far  float64 `json:"far_s"`
	// SessionsBegun anew with leaves.
	SessionsBegun int `json:"sessions_begun"`
	// RouteAway is the longest that a leaf's kernel had a pod's route no more.
	RouteAway float64 `json:"route_away_s"`
	// LoadAverage of the machine, of 1 min.
	LoadAverage string `json:"load_average"`
}

// seenFor is how long pods talk after each restart: longer than a session takes to come back.
const seenFor = 6 * time.Second

// TestSwitchRestarts is a measurement: scripts/measured/node-network/measure-switch-restarts says in JSON what it wants. What must hold is in
// the matrix of faults.
func TestSwitchRestarts(t *testing.T) {
	setting := os.Getenv("RAILWRIGHT_MEASURE_RESTARTS")
	if setting == "" {
		t.Skip("this is a measurement: scripts/measured/node-network/measure-switch-restarts")
	}
	var plan struct {
		FRR                  testlab.FRRVersion `json:"frr"`
		FastExternalFailover bool               `json:"fast_external_failover"`
		ActiveLeaves         bool               `json:"active_leaves"`
		Times                int                `json:"times"`
	}
	err := json.Unmarshal([]byte(setting), &plan)
	release, known := map[testlab.FRRVersion]railnode.Release{testlab.FRR8: railnode.OldFRR, testlab.FRR10: railnode.NewFRR}[plan.FRR]
	if err != nil || !known || plan.Times < 1 {
		t.Fatalf("RAILWRIGHT_MEASURE_RESTARTS=%q: %v", setting, err)
	}
	fabric := newFabric(t, shape{nodes: 2, Release: release})
	node, pods, routes := fabric.nodes[onNode], newBystanders(t, fabric), watchRoutes(t, fabric)
	if plan.FastExternalFailover {
		node.FRR.Show(t, "configure terminal", "router bgp", "bgp fast-external-failover")
	}
	for _, leaf := range fabric.leaves {
		if plan.ActiveLeaves {
			leaf.FRR.Show(t, "configure terminal", "router bgp", "no neighbor NODES passive")
		}
	}
	measured := switchRestarts{FRR: plan.FRR, FastExternalFailover: plan.FastExternalFailover, ActiveLeaves: plan.ActiveLeaves}
	for range plan.Times {
		measured.Restarts = append(measured.Restarts, node.measureRestart(t, pods, routes))
	}
	railnode.Keep(t, measured)
}

func (nd *node) measureRestart(t *testing.T, pods *bystanders, routes *arrivals) switchRestart {
	t.Helper()
	nd.fabric.mustSettle(t)
	before := nd.sessionsBegun(t)
	routes.longestAway()
	traffic, began := pods.talk(t), time.Now()
	nd.RestartSwitch(t)
	away := time.Since(began)
	nd.Ready(t)
	ready := time.Since(began)
	time.Sleep(seenFor - ready)
	near, far := traffic.end(t, false)
	restart := switchRestart{
		Away: away.Seconds(), Ready: ready.Seconds(), Near: near.outage.Seconds(), Far: far.outage.Seconds(),
		RouteAway: routes.longestAway().Seconds(),
	}
	for leaf, begun := range nd.sessionsBegun(t) {
		restart.SessionsBegun += begun - before[leaf]
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		restart.LoadAverage, _, _ = strings.Cut(string(load), " ")
	}
	t.Logf("%+v", restart)
	return restart
}
