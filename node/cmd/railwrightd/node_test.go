package main

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	nodev1 "railwright/node/api/v1"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// TestNode loses a pod, runs the verbs, and holds many attachments.
func TestNode(t *testing.T) {
	lab := newLab(t, railnode.NewFRR)
	lab.restart()
	lab.addOrphan(t)
	pod := lab.newPod(2, "tenant-a")
	lab.mustAdd(pod)
	testlab.Eventually(t, "routes at the leaf", func() bool { return lab.leafHas(pod) })
	lab.mustWork(pod)
	t.Run("pod without a DEL is cleaned up", lab.lose)
	lab.mustWork(pod) // caches its flows
	t.Run("verbs", lab.runVerbs)
	t.Run("many attachments", lab.hold)
	lab.mustWork(pod)
	testlab.Eventually(t, "removal of the port without a record", func() bool {
		return !strings.Contains(lab.OVS.Vsctl(t, "list-ports", lab.rail.Bridge()), orphan)
	})
	lab.mustWork(pod)
	t.Run("orderly shutdown", lab.endOrderly)
}

const orphan = "rep9"

// addOrphan leaves what ovs-cni leaves if the power fails before our plugin is called: a port without a record for a
// VF's representor, which outlives the pod.
func (nl *nodeLab) addOrphan(t *testing.T) {
	t.Helper()
	nl.Host.IP(t, "link", "add", orphan, "type", "veth", "peer", "name", "vf9")
	nl.OVS.AddPort(t, nl.rail.Bridge(), orphan, "owner=ovs-cni.network.kubevirt.io", "contNetns=/run/netns/rwt-none")
}

// endOrderly stops the daemon while a pod's packets pass.
func (nl *nodeLab) endOrderly(t *testing.T) {
	pod := nl.newPod(3, "tenant-a")
	nl.mustAdd(pod)
	testlab.Eventually(t, "routes at the leaf", func() bool { return nl.leafHas(pod) })
	pings := pod.stream(t, remoteIPv4)
	nl.Signal(syscall.SIGTERM)
	if state := nl.Died(t); state.ExitCode() != exitOK {
		t.Errorf("daemon ended with %v", state)
	}
	nl.restart()
	nl.mustWork(pod)
	if lost, sent := pings.countLost(t); lost > 0 {
		t.Errorf("%d of %d packets were lost", lost, sent)
	}
}

// lose deletes a pod whose runtime never calls DEL.
func (nl *nodeLab) lose(t *testing.T) {
	gone := nl.newPod(13, "tenant-a")
	nl.mustAdd(gone)
	testlab.Run(t, "ip", "netns", "delete", gone.Name)
	nl.mustBeGone(gone)
	testlab.Eventually(t, "removal of its port", func() bool {
		return !strings.Contains(nl.OVS.Vsctl(t, "list-ports", nl.rail.Bridge()), "veth13")
	})
}

// bulk creates attachments without pods: veths on the bridge whose other ends share a namespace.
func (nl *nodeLab) bulk(first, count int) []*pod {
	nl.t.Helper()
	holder := testlab.NewNamespace(nl.t, "bulk")
	var links strings.Builder
	ports := []string{}
	var made []*pod
	for n := first; n < first+count; n++ {
		fmt.Fprintf(&links, "link add veth%d type veth peer name e%d netns %s\nlink set veth%d up\n", n, n, holder.Name, n)
		ports = append(ports, "--", "add-port", nl.rail.Bridge(), fmt.Sprintf("veth%d", n))
		made = append(made, &pod{Namespace: holder, n: n, add: &nodev1.AddRequest{
			Key:   &nodev1.Key{Network: "rail0", ContainerId: fmt.Sprintf("c%d", n), Interface: "eth0"},
			Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
			Pod:   &nodev1.Pod{Namespace: "tenant-a", Name: fmt.Sprintf("pod-%d", n)},
			Netns: holder.Path(), HostInterface: fmt.Sprintf("veth%d", n), Mac: fmt.Sprintf("02:00:00:01:%02x:%02x", n>>8, n&0xff),
			Addresses: []string{fmt.Sprintf("10.1.%d.%d", n>>8, n&0xff)}, Gateways: []string{"10.1.0.1"},
		}})
	}
	batch := nl.Host.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(links.String())
	if output, err := batch.CombinedOutput(); err != nil {
		nl.t.Fatalf("%v\n%s", err, output)
	}
	nl.OVS.Vsctl(nl.t, ports[1:]...)
	return made
}

// leafRoutes counts the pods with an IPv4 route at the leaf.
func (nl *nodeLab) leafRoutes(pods []*pod) int {
	var addresses []string
	for _, p := range pods {
		addresses = append(addresses, p.add.GetAddresses()[0])
	}
	return nl.leaf.Count(addresses...)
}

// hold creates and deletes many attachments concurrently.
func (nl *nodeLab) hold(t *testing.T) {
	pods := nl.bulk(100, 200)
	for i := 0; i < len(pods); i += 50 {
		began := time.Now()
		nl.all(pods[i:i+50], func(p *pod) error { return nl.add(p) })
		t.Logf("50 concurrent ADDs, %d held before: %v", i, time.Since(began))
	}
	testlab.Eventually(t, "all routes at the leaf", func() bool { return nl.leafRoutes(pods) == len(pods) })
	nl.kill()
	began := time.Now()
	nl.restart()
	testlab.Eventually(t, "no difference", func() bool {
		reply, err := nl.Client.Check(railnode.Soon(t), &nodev1.CheckRequest{Key: pods[0].add.GetKey(), Parts: pods[0].add.GetParts()})
		return err == nil && len(reply.GetDifferences()) == 0
	})
	t.Logf("200 attachments were checked %v after the daemon's start", time.Since(began))
	if count := nl.leafRoutes(pods); count != len(pods) {
		t.Errorf("leaf has %d routes", count)
	}
	began = time.Now()
	nl.all(pods, func(p *pod) error { return nl.remove(p) })
	t.Logf("200 concurrent DELs: %v", time.Since(began))
	testlab.Eventually(t, "removal of the routes at the leaf", func() bool { return nl.leafRoutes(pods) == 0 })
	for _, p := range []*pod{pods[0], pods[99], pods[199]} {
		address := "=" + p.add.GetAddresses()[0]
		testlab.Eventually(t, "no flow names "+address, func() bool {
			return nl.flowsNaming(address+",", address+" ", p.add.GetMac()) == 0
		})
	}
}

func (nl *nodeLab) all(pods []*pod, act func(*pod) error) {
	nl.t.Helper()
	var group sync.WaitGroup
	for _, p := range pods {
		group.Go(func() {
			if err := act(p); err != nil {
				nl.t.Errorf("pod %d: %v %v", p.n, err, detailsOf(err))
			}
		})
	}
	group.Wait()
}
