package lab

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// fault that is made and ends; what untouched pods may lose meanwhile.
type fault struct {
	name string
	make func(t *testing.T, fabric *fabric)
	// loss that is allowed: none, of pods of two nodes only, or until a second after the component's restart.
	loss loss
}

type loss int

const (
	noLoss     loss = iota
	farLoss         // the path to other nodes is cut: that of the same node is not
	untilBack       // a second more than the component was away
	anyLossNow      // the fault is that nothing runs
)

// lossAfter a restart of ovs-vswitchd, until which the daemon has programmed the flows again.
const lossAfter = time.Second

const onNode = 0 // the node that faults are made on

func faults() []fault {
	return []fault{
		{"railwrightd is killed", func(t *testing.T, fabric *fabric) {
			fabric.nodes[onNode].kill(t)
			fabric.nodes[onNode].restart(t)
		}, noLoss},
		{"ovsdb-server is killed", func(t *testing.T, fabric *fabric) {
			fabric.nodes[onNode].open.Kill(t, testlab.Database)
			fabric.nodes[onNode].open.Start(t, testlab.Database)
		}, noLoss},
		{"ovs-vswitchd is killed", func(t *testing.T, fabric *fabric) { restartSwitch(t, fabric.nodes[onNode]) }, untilBack},
		{"ovs-vswitchd and railwrightd are killed", func(t *testing.T, fabric *fabric) {
			fabric.nodes[onNode].kill(t)
			restartSwitch(t, fabric.nodes[onNode])
			fabric.nodes[onNode].restart(t)
		}, anyLossNow},
		{"bgpd is killed", func(t *testing.T, fabric *fabric) { restartFRR(t, fabric.nodes[onNode].frr, "bgpd") }, noLoss},
		{"zebra is killed", func(t *testing.T, fabric *fabric) { restartFRR(t, fabric.nodes[onNode].frr, "zebra") }, noLoss},
		{"an uplink goes down and up", func(t *testing.T, fabric *fabric) {
			for _, leaf := range fabric.leaves {
				leaf.IP(t, "link", "set", "swp1", "down")
				leaf.IP(t, "link", "set", "swp1", "up")
				leaf.giveAddresses(t, fabric.nodes[onNode])
			}
		}, farLoss},
		{"the leaves start anew", func(t *testing.T, fabric *fabric) {
			for _, leaf := range fabric.leaves {
				restartFRR(t, leaf.frr, "bgpd", "zebra")
			}
		}, farLoss},
	}
}

func restartSwitch(t *testing.T, node *node) {
	t.Helper()
	node.open.Kill(t, testlab.Switch)
	node.open.Start(t, testlab.Switch)
	node.giveAddresses(t)
	// It is back once it takes flows.
	for rail := range rails {
		testlab.Eventually(t, 10*time.Second, bridgeOf(rail)+" takes flows", func() bool {
			socket := "unix:" + filepath.Join(node.open.Folder, bridgeOf(rail)+".mgmt")
			return exec.Command("ovs-ofctl", "-O", "OpenFlow14", "show", socket).Run() == nil
		})
	}
}

func restartFRR(t *testing.T, frr *testlab.FRR, daemons ...string) {
	t.Helper()
	for _, daemon := range daemons {
		frr.Kill(t, daemon)
	}
	slices.Reverse(daemons)
	for _, daemon := range daemons {
		frr.Start(t, daemon)
	}
}

// matrix of faults: after each, desired equals real within 5 s of the component being ready again.
func matrix(t *testing.T, fabric *fabric, leaveOut ...string) {
	pods := newBystanders(t, fabric)
	fabric.mustSettle(t)
	for _, fault := range faults() {
		if slices.Contains(leaveOut, fault.name) {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			traffic := pods.talk(t)
			began := time.Now()
			fault.make(t, fabric)
			away := time.Since(began)
			fabric.nodes[onNode].ready(t)
			t.Logf("away for %.2f s; ready %.2f s after; all was real %.2f s after that", away.Seconds(), (time.Since(began) - away).Seconds(),
				fabric.mustSettle(t).Seconds())
			near, far := traffic.end(t, fault.loss == noLoss)
			if fault.loss == farLoss && near.back < near.sent {
				t.Errorf("pods of one node lost %d of %d: their path was not touched", near.sent-near.back, near.sent)
			}
			if most := away + lossAfter; fault.loss == untilBack && (near.outage > most || far.outage > most) {
				t.Errorf("outage of %v and %v, the component was away for %v", near.outage, far.outage, away)
			}
			for _, family := range []int{4, 6} {
				if found := reaches(t, pods.far.rail[0], pods.here.rail[0], family, 5); found.back == 0 {
					t.Errorf("nothing arrives by IPv%d", family)
				}
			}
		})
	}
}

// reboot of a node: all pods and programs are gone, what is on disk is there.
func reboot(t *testing.T, fabric *fabric) {
	node, other := fabric.nodes[onNode], fabric.nodes[1]
	stays := other.attachedPod(t, "red-1")
	var gone []*pod
	for range 3 {
		one := node.newPod(t, "red-1")
		for rail := range rails {
			if err := one.attach(t, rail); err != nil {
				t.Fatal(err)
			}
		}
		gone = append(gone, one)
	}
	fabric.mustSettle(t)
	node.kill(t)
	for _, daemon := range []string{"bgpd", "zebra"} {
		node.frr.Kill(t, daemon)
	}
	node.open.Kill(t, testlab.Switch)
	node.open.Kill(t, testlab.Database)
	for _, one := range gone {
		testlab.Run(t, "ip", "netns", "delete", one.Name)
		for rail := range rails {
			one.forget(rail)
		}
	}
	for rail := range rails {
		for _, family := range []string{"-4", "-6"} {
			_, _ = node.host.Try("ip", family, "route", "flush", "table", strings.TrimSpace(tableText(rail)))
		}
	}
	node.emptyIPAM(t)
	node.open.Start(t, testlab.Database)
	node.open.Start(t, testlab.Switch)
	node.giveAddresses(t)
	node.frr.Start(t, "zebra")
	node.frr.Start(t, "bgpd")
	node.restart(t)
	t.Logf("all was real %.2f s after the daemon was ready", fabric.mustSettle(t).Seconds())
	fresh := node.attachedPod(t, "red-2")
	fabric.mustSettle(t)
	if found := reaches(t, fresh.rail[0], stays.rail[0], 4, 5); found.back == 0 {
		t.Errorf("a pod that was made after the reboot reaches nobody: %+v", found)
	}
}
