package openvswitch

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// pair is a lab with two pods that must reach each other before every fault and after its repair.
type pair struct {
	*lab
	first, second *labPod
	want          []plan.Flow
	events        <-chan Event
}

func newPair(t *testing.T) *pair {
	t.Helper()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	both := &pair{lab: rail, first: first, second: second, want: rail.program(t)}
	both.events = rail.client.Events(t.Context())
	both.repaired(t, 0)
	return both
}

// repaired programs the wanted flows, of which at least atLeast must have been missing, and checks that the pods reach
// each other.
func (p *pair) repaired(t *testing.T, atLeast int) {
	t.Helper()
	count, err := p.client.Replace(t.Context(), bridgeName, p.want)
	if err != nil || count < atLeast {
		t.Errorf("%d flows repaired, want %d or more: %v", count, atLeast, err)
	}
	differences, err := p.client.Differences(t.Context(), bridgeName, p.want)
	if err != nil || len(differences) > 0 {
		t.Errorf("still different: %v %v", differences, err)
	}
	for _, to := range p.second.Addresses {
		if _, err := ping(p.first.namespace, to); err != nil {
			t.Error(err)
		}
	}
}

func hasReason(want string) func(Event) bool {
	return func(event Event) bool { return event.Bridge == bridgeName && strings.Contains(event.Reason, want) }
}

func TestClientSurvivesSwitchCrashAndHang(t *testing.T) {
	t.Parallel()
	both := newPair(t)
	both.open.Kill(t, testlab.Switch)
	nextEvent(t, both.events, hasReason("ovs-vswitchd does not reply"))
	if _, err := both.client.Facts(t.Context(), both.rail); err == nil || !strings.Contains(err.Error(), "ovs-vswitchd") {
		t.Errorf("facts while ovs-vswitchd is down: %v", err)
	}
	if err := both.client.Change(t.Context(), bridgeName, both.want[:1], nil); err == nil {
		t.Error("change succeeded while ovs-vswitchd is down")
	}
	both.open.Start(t, testlab.Switch)
	_, took := nextEvent(t, both.events, flowsLost)
	t.Logf("lost flows were reported after %v", took)
	both.repaired(t, len(both.want))

	both.open.Freeze(t, testlab.Switch)
	_, took = nextEvent(t, both.events, hasReason("no reply"))
	t.Logf("hanging switch was reported after %v", took)
	both.open.Thaw(t, testlab.Switch)
	nextEvent(t, both.events, hasReason("bridge is ready"))
	both.repaired(t, 0)
}

// TestClientSurvivesDatabaseCrash kills ovsdb-server. The userspace datapath forwards nothing meanwhile: ovs-vswitchd
// waits for the database's lock in its forwarding loop.
func TestClientSurvivesDatabaseCrash(t *testing.T) {
	t.Parallel()
	both := newPair(t)
	both.open.Kill(t, testlab.Database)
	nextEvent(t, both.events, hasReason("Open vSwitch's database"))
	if _, err := both.client.Facts(t.Context(), both.rail); err == nil || !strings.Contains(err.Error(), "ovsdb-server") {
		t.Errorf("facts while ovsdb-server is down: %v", err)
	}
	both.open.Start(t, testlab.Database)
	nextEvent(t, both.events, hasReason("bridge is ready"))
	third := both.addPod(t, 4, "a")
	if bridge, err := both.client.BridgeOf(t.Context(), third.HostInterface); err != nil || bridge != bridgeName {
		t.Errorf("port created after the restart: %q %v", bridge, err)
	}
	both.repaired(t, 0)
}

func TestForeignChangesAreReported(t *testing.T) {
	t.Parallel()
	both := newPair(t)
	for name, want := range map[string]string{
		"deletes all flows":       "del-flows",
		"deletes one flow":        "del-flows table=10,in_port=2,arp",
		"deletes the canary":      "del-flows table=63",
		"adds an open flow":       "add-flow priority=60000,actions=NORMAL",
		"adds a flow in a bundle": "--bundle add-flow table=7,priority=1,actions=drop",
		"changes what it finds":   "add-flow table=63,cookie=0,priority=0,actions=NORMAL",
	} {
		awaitFlowCount(t, both.lab)
		command := append([]string{"ovs-ofctl", "-O", "OpenFlow14"}, strings.Fields(want)...)
		place := 4
		if command[3] == "--bundle" {
			place = 5
		}
		socket := "unix:" + both.client.settings.management(bridgeName)
		testlab.Run(t, slices.Insert(command, place, socket)...)
		_, took := nextEvent(t, both.events, flowsLost)
		t.Logf("another program %s: reported after %v", name, took)
		both.repaired(t, 1)
	}
}

// TestForeignChangeRightAfterOurFlowsIsReported changes flows before the watch has seen ours.
func TestForeignChangeRightAfterOurFlowsIsReported(t *testing.T) {
	t.Parallel()
	both := newPair(t)
	for range 3 {
		both.open.Kill(t, testlab.Switch)
		both.open.Start(t, testlab.Switch)
		nextEvent(t, both.events, flowsLost)
		if _, err := both.client.Replace(t.Context(), bridgeName, both.want); err != nil {
			t.Fatal(err)
		}
		if err := both.client.Change(t.Context(), bridgeName, both.want[:1], nil); err != nil {
			t.Fatal(err)
		}
		both.open.Ofctl(t, bridgeName, "del-flows")
		nextEvent(t, both.events, flowsLost)
	}
}

// awaitFlowCount waits until the watch knows the number of flows after our last change.
func awaitFlowCount(t *testing.T, rail *lab) {
	t.Helper()
	bridge := rail.client.bridges[bridgeName]
	testlab.Eventually(t, "flow count of the watch", func() bool {
		bridge.lock.Lock()
		defer bridge.lock.Unlock()
		return bridge.problem == nil && bridge.expected > 0
	})
}

// TestChangedFactsAreReported checks that each change of a neighbour, an address or a port causes an event.
func TestChangedFactsAreReported(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	rail.program(t)
	events := rail.client.Events(t.Context())
	pod := rail.addPod(t, 2, "a")
	nextEvent(t, events, hasReason("ports changed"))

	rail.leaf.IP(t, "link", "set", "swp1", "address", "02:00:00:00:99:99")
	rail.leaf.Run(t, "ping", "-c", "1", "-W", "2", "10.0.0.0")
	nextEvent(t, events, hasReason("02:00:00:00:99:99"))

	rail.host.IP(t, "addr", "add", "10.0.9.9/32", "dev", bridgeName)
	nextEvent(t, events, hasReason("interface of the bridge"))
	facts, err := rail.client.Facts(t.Context(), rail.rail)
	if err != nil || facts.LeafMAC.String() != "02:00:00:00:99:99" || !facts.AnswersND || facts.BridgeMAC != gateway {
		t.Errorf("%+v %v", facts, err)
	}
	if len(facts.HostAddresses) != 4 || facts.Ports[pod.HostInterface] == 0 || facts.UplinkPort == 0 {
		t.Errorf("%+v", facts)
	}

	rail.open.Vsctl(t, "del-port", "p0")
	nextEvent(t, events, hasReason("uplink p0 is not a working port"))
	rail.open.Vsctl(t, "add-port", bridgeName, "p0")
	nextEvent(t, events, hasReason("is ready"))

	again := "add-br br-rail0 -- set bridge br-rail0 datapath_type=netdev fail_mode=secure " +
		`other-config:hwaddr="02:00:00:00:00:01" -- add-port br-rail0 p0`
	for want, breaks := range map[string][2]string{
		"set-fail-mode br-rail0 secure": {"set-fail-mode br-rail0 standalone", "set-fail-mode br-rail0 secure"},
		"del-controller br-rail0":       {"set-controller br-rail0 tcp:127.0.0.1:6653", "del-controller br-rail0"},
		"other-config:hwaddr": {"remove bridge br-rail0 other-config hwaddr",
			`set bridge br-rail0 other-config:hwaddr="02:00:00:00:00:01"`},
		"must include OpenFlow14":    {"set bridge br-rail0 protocols=OpenFlow13", "clear bridge br-rail0 protocols"},
		"Open vSwitch has no bridge": {"del-br br-rail0", again},
	} {
		rail.open.Vsctl(t, strings.Fields(breaks[0])...)
		nextEvent(t, events, hasReason(want))
		rail.open.Vsctl(t, strings.Fields(breaks[1])...)
		nextEvent(t, events, hasReason("is ready"))
	}
}

func TestUnnumberedLeafIsTheNeighbourRouter(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	settings := rail.settings(t)
	settings.Rails[0].Leaf = netip.Addr{}
	client, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	facts, err := client.Facts(t.Context(), rail.rail)
	if err != nil || !strings.Contains(facts.LeafProblem, "no router as neighbour") {
		t.Fatalf("%+v %v", facts, err)
	}
	rail.client = client
	rail.programHost(t)
	events := client.Events(t.Context())
	local := "fe80::" // the leaf's kernel chose it
	for _, word := range strings.Fields(rail.leaf.IP(t, "-6", "addr", "show", "dev", "swp1", "scope", "link")) {
		if strings.HasPrefix(word, "fe80::") {
			local = strings.TrimSuffix(word, "/64")
		}
	}
	rail.host.Run(t, "ping", "-c", "1", "-W", "2", local+"%"+bridgeName)
	nextEvent(t, events, func(event Event) bool { return strings.Contains(event.Reason, "MAC address of the leaf") })
	facts, err = client.Facts(t.Context(), rail.rail)
	if err != nil || facts.LeafMAC != macOf(t, rail.leaf, "swp1") {
		t.Errorf("%+v %v, want %v", facts, err, macOf(t, rail.leaf, "swp1"))
	}

	rail.host.IP(t, "neigh", "add", "fe80::77", "lladdr", "02:00:00:00:77:77", "dev", bridgeName, "router")
	rail.host.IP(t, "neigh", "add", "fe80::78", "lladdr", "02:00:00:00:78:78", "dev", bridgeName, "router")
	second, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	facts, err = second.Facts(t.Context(), rail.rail)
	if err != nil || !strings.Contains(facts.LeafProblem, "routers as neighbours") {
		t.Errorf("chose one of several routers: %+v %v", facts, err)
	}
}

// TestChangesUseTheBridgesOwnConnection changes flows where ovs-ofctl cannot be started, also after ovs-vswitchd has
// closed the connection.
func TestChangesUseTheBridgesOwnConnection(t *testing.T) {
	rail := newLab(t)
	rail.program(t)
	flow := plan.Flow{Table: 20, Priority: 132, Match: "ip,nw_dst=10.9.0.1", Actions: "set_field:5->reg1,goto_table:30", Cookie: plan.Cookie(0, plan.Pass)}
	has := func() bool {
		return strings.Contains(rail.open.Ofctl(t, bridgeName, "dump-flows", "table=20"), "nw_dst=10.9.0.1")
	}
	path := os.Getenv("PATH")
	for round := range 2 {
		t.Setenv("PATH", "")
		err := rail.client.Change(t.Context(), bridgeName, []plan.Flow{flow}, nil)
		t.Setenv("PATH", path)
		if err != nil || !has() {
			t.Fatalf("round %d: %v", round, err)
		}
		t.Setenv("PATH", "")
		err = rail.client.Change(t.Context(), bridgeName, nil, []plan.Flow{flow})
		t.Setenv("PATH", path)
		if err != nil || has() {
			t.Fatalf("round %d: %v", round, err)
		}
		bridge := rail.client.bridges[bridgeName]
		bridge.hangUp()
	}
	wrong := flow
	wrong.Actions = "goto_table:3"
	if err := rail.client.Change(t.Context(), bridgeName, []plan.Flow{wrong}, nil); err == nil || !strings.Contains(err.Error(), "none done") {
		t.Errorf("a flow that Open vSwitch refuses: %v", err)
	}
}
