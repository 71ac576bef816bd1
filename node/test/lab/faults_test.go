package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// fault is a temporary fault with the loss that other pods may have meanwhile.
type fault struct {
	name string
	make func(t *testing.T)
	// loss is the allowed loss.
	loss loss
	// log is the text by which the daemon's log reports the repair. It is not checked if empty.
	log string
}

type loss int

const (
	noLoss     loss = iota
	farLoss         // only the path to other nodes is cut
	untilBack       // until testlab.MaxOutage of the component's downtime
	anyLossNow      // no limit: nothing runs or nothing is programmed during the fault
)

const (
	// outlived is a downtime that a BGP session outlives: the last message before it may be 3 s old, and the hold time
	// is 9 s.
	outlived = 4 * time.Second
)

const onNode = 0 // the node with the faults

func (f *fabric) faults() []fault {
	node := f.nodes[onNode]
	made := []fault{
		{"railwrightd is killed", func(t *testing.T) {
			node.Kill(t)
			node.Restart(t)
		}, noLoss, ""},
		{"ovsdb-server is killed", func(t *testing.T) {
			node.OVS.Kill(t, testlab.Database)
			node.OVS.Start(t, testlab.Database)
		}, noLoss, ""},
		{"ovs-vswitchd is killed", func(t *testing.T) { node.RestartSwitch(t) }, untilBack, flowsRepaired},
		{"ovs-vswitchd and railwrightd are killed", func(t *testing.T) {
			node.Kill(t)
			node.RestartSwitch(t)
			node.Restart(t)
		}, anyLossNow, ""},
		{"all flows are deleted", func(t *testing.T) {
			for rail := range rails {
				node.OVS.Ofctl(t, bridgeOf(rail), "del-flows")
			}
		}, anyLossNow, flowsRepaired},
		{"flows of pods are deleted", func(t *testing.T) {
			for rail := range rails {
				node.OVS.Ofctl(t, bridgeOf(rail), "del-flows", fmt.Sprintf("ip,nw_dst=%s", railPrefixes(rail)[0]))
			}
		}, anyLossNow, flowsRepaired},
		{"bgpd is killed", func(t *testing.T) { node.FRR.Restart(t, "bgpd") }, noLoss, ""},
		{"zebra is killed", func(t *testing.T) { node.FRR.Restart(t, "zebra") }, noLoss, ""},
		{"an uplink goes down and up", func(t *testing.T) {
			for _, leaf := range f.leaves {
				leaf.IP(t, "link", "set", "swp1", "down")
				leaf.IP(t, "link", "set", "swp1", "up")
				leaf.GiveAddresses(t, node.Node)
			}
		}, farLoss, ""},
		{"the leaves start anew", func(t *testing.T) {
			for _, leaf := range f.leaves {
				leaf.FRR.Restart(t, "bgpd", "zebra")
			}
		}, farLoss, ""},
	}
	if node.daemonRoutes() {
		made = append(made, fault{"routes are deleted", node.flushRoutes, farLoss, routesRepaired})
	}
	return made
}

// sessionsBegun returns the number of sessions with each leaf since bgpd started.
func (nd *node) sessionsBegun(t *testing.T) map[string]int {
	t.Helper()
	var leaves map[string]struct {
		Established int `json:"connectionsEstablished"`
	}
	if err := json.Unmarshal([]byte(nd.FRR.Show(t, "show bgp neighbors json")), &leaves); err != nil {
		t.Fatal(err)
	}
	begun := map[string]int{}
	for name, leaf := range leaves {
		begun[name] = leaf.Established
	}
	return begun
}

// Texts by which the daemon's log reports repairs, whatever their trigger.
const (
	flowsRepaired  = `"what":"flows"`
	routesRepaired = `"what":"routes"`
)

// flushRoutes deletes the routes of all rails.
func (nd *node) flushRoutes(t *testing.T) {
	t.Helper()
	for rail := range rails {
		for _, family := range []string{"-4", "-6"} {
			_, _ = nd.Host.Try("ip", family, "route", "flush", "table", tableText(rail))
		}
	}
}

// matrix runs all faults. After each, the actual state must equal the desired state once the component is ready again.
func matrix(t *testing.T, fabric *fabric) {
	pods := newBystanders(t, fabric)
	others := newStrangers(t, fabric, pods)
	defer others.end(t)
	fabric.mustSettle(t)
	node := fabric.nodes[onNode]
	for _, fault := range fabric.faults() {
		t.Run(fault.name, func(t *testing.T) {
			traffic, logged, sessions := pods.talk(t), len(node.Log(t)), node.sessionsBegun(t)
			began := time.Now()
			fault.make(t)
			away := time.Since(began)
			node.Ready(t)
			t.Logf("down for %.2f s; ready %.2f s later; state complete %.2f s after that", away.Seconds(), (time.Since(began) - away).Seconds(),
				fabric.mustSettle(t).Seconds())
			near, far := traffic.end(t, fault.loss == noLoss)
			if fault.loss == farLoss && near.back < near.sent {
				t.Errorf("pods of one node lost %d of %d datagrams, but the fault is not on their path", near.sent-near.back, near.sent)
			}
			if fault.loss == untilBack {
				if most := testlab.MaxOutage(away); near.outage > most || far.outage > most {
					t.Errorf("outages are %v and %v after a downtime of %v, want at most %v", near.outage, far.outage, away, most)
				}
				// Otherwise the leaf may drop the routes, and other nodes would not reach the pods long after the flows
				// are back.
				if begun := node.sessionsBegun(t); near.outage < outlived && !maps.Equal(begun, sessions) {
					t.Errorf("BGP sessions must outlive %v; session starts by leaf: %v, before the fault %v", near.outage, begun, sessions)
				}
			}
			if log := node.Log(t)[logged:]; strings.Count(log, fault.log) < rails && fault.log != "" {
				t.Errorf("log must report the repair of each rail: %s", log)
			}
			for rail, face := range pods.here.rail {
				for _, family := range []int{4, 6} {
					if found := reaches(t, pods.far.rail[rail], face, family, 5); found.back == 0 {
						t.Errorf("nothing arrives over %s by IPv%d", railName(rail), family)
					}
				}
			}
		})
	}
}

// reboot reboots a node: all pods and processes are gone, files on disk remain.
func reboot(t *testing.T, fabric *fabric) {
	node, other := fabric.nodes[onNode], fabric.nodes[1]
	stays := other.attachedPod(t, "red-1")
	var gone []*pod
	for range 3 {
		p := node.newPod(t, "red-1")
		for rail := range rails {
			if err := p.attach(t, rail); err != nil {
				t.Fatal(err)
			}
		}
		gone = append(gone, p)
	}
	fabric.mustSettle(t)
	node.Kill(t)
	for _, daemon := range []string{"bgpd", "zebra"} {
		node.FRR.Kill(t, daemon)
	}
	node.OVS.Kill(t, testlab.Switch)
	node.OVS.Kill(t, testlab.Database)
	for _, p := range gone {
		testlab.Run(t, "ip", "netns", "delete", p.Name)
		for rail := range rails {
			p.forget(rail)
		}
	}
	node.flushRoutes(t)
	node.emptyIPAM(t)
	node.OVS.Start(t, testlab.Database)
	node.OVS.Start(t, testlab.Switch)
	node.GiveAddresses(t)
	node.FRR.Start(t, "zebra")
	node.FRR.Start(t, "bgpd")
	node.Restart(t)
	t.Logf("state complete %.2f s after the daemon was ready", fabric.mustSettle(t).Seconds())
	fresh := node.attachedPod(t, "red-2")
	fabric.mustSettle(t)
	if found := reaches(t, fresh.rail[0], stays.rail[0], 4, 5); found.back == 0 {
		t.Errorf("pod created after the reboot has no connectivity: %+v", found)
	}
}
