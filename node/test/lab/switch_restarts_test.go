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

// switchRestarts are the restarts measured with one FRR release.
type switchRestarts struct {
	FRR testlab.FRRVersion `json:"frr"`
	// FastExternalFailover reports that a session ends with its interface, which is FRR's default. The configuration
	// for nodes disables it.
	FastExternalFailover bool `json:"fast_external_failover"`
	// ActiveLeaves reports that leaves open sessions as nodes do, which is FRR's default. The configuration for leaves
	// disables it.
	ActiveLeaves bool            `json:"active_leaves"`
	Restarts     []switchRestart `json:"restarts"`
}

// switchRestart is one kill of ovs-vswitchd with an immediate start. Times are in seconds, Away and Ready since the
// kill.
type switchRestart struct {
	// Away is the time until it accepted flows on all rails.
	Away float64 `json:"away_s"`
	// Ready is the time until the daemon reported to be ready.
	Ready float64 `json:"ready_s"`
	// Near and Far are the longest outages of pods of one node and of two.
	Near float64 `json:"near_s"`
	Far  float64 `json:"far_s"`
	// SessionsBegun is the number of new sessions with leaves.
	SessionsBegun int `json:"sessions_begun"`
	// RouteAway is the longest time that a leaf's kernel lacked a pod's route.
	RouteAway float64 `json:"route_away_s"`
	// LoadAverage is the machine's 1-minute load average.
	LoadAverage string `json:"load_average"`
}

// seenFor is how long traffic continues after each restart. It is longer than a session takes to return.
const seenFor = 6 * time.Second

// TestSwitchRestarts measures restarts. scripts/measured/node-network/measure-switch-restarts passes the parameters as
// JSON. The matrix of faults has the assertions.
func TestSwitchRestarts(t *testing.T) {
	setting := os.Getenv("RAILWRIGHT_MEASURE_RESTARTS")
	if setting == "" {
		t.Skip("this is a measurement; run scripts/measured/node-network/measure-switch-restarts")
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
