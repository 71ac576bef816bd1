package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/attachment"
	"railwright/node/internal/tombstone"
	"railwright/node/testlab"
)

// TestFaults of all kinds, one after the other on one node; each leaves it well.
func TestFaults(t *testing.T) {
	lab := newLab(t, testlab.FRR10, frrconfig.KernelTable)
	state := lab.path("state")
	if err := errors.Join(os.Mkdir(state, 0o700), syscall.Mount("tmpfs", state, "tmpfs", 0, "size=8m")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(state, syscall.MNT_DETACH) })
	lab.startReady()
	for _, group := range []struct {
		name string
		try  func(*nodeLab, *testing.T)
	}{
		{"what ends comes back", (*nodeLab).endAndComeBack}, {"what is there is told", (*nodeLab).tell},
		{"what is lost is cleaned up", (*nodeLab).lose},
		{"a full disk refuses ADDs and serves DELs", (*nodeLab).fillDisk}, {"many at once, and many held", (*nodeLab).hold},
	} {
		t.Run(group.name, func(t *testing.T) { group.try(lab, t) })
	}
}

// endAndComeBack: after each fault what is there is what was asked for, soon after the fault's end.
func (lab *nodeLab) endAndComeBack(t *testing.T) {
	pod := lab.newPod(2, "tenant-a")
	lab.first = pod
	lab.mustAdd(pod)
	testlab.Eventually(t, 2*time.Second, "the leaf has its routes", func() bool { return lab.leafHas(pod) })
	lab.mustWork(pod)
	for _, fault := range []struct {
		name string
		make func()
		// mayLose packets of a pod while it lasts.
		mayLose bool
	}{
		{"the daemon is killed", func() { lab.kill(); lab.startReady() }, false},
		{"the daemon ends orderly", func() {
			_ = lab.daemon.Process.Signal(syscall.SIGTERM)
			if state := lab.died(); state.ExitCode() != exitOK {
				t.Errorf("the daemon ended with %v", state)
			}
			lab.startReady()
		}, false},
		{"ovsdb-server is killed", func() {
			lab.open.Kill(t, testlab.Database)
			lab.open.Start(t, testlab.Database)
		}, false},
		{"ovs-vswitchd is killed", func() {
			lab.open.Kill(t, testlab.Switch)
			lab.open.Start(t, testlab.Switch)
			lab.host.IP(t, "link", "set", bridge, "up")
			lab.host.IP(t, "addr", "replace", "192.0.2.1/31", "dev", bridge)
			lab.host.IP(t, "addr", "replace", "2001:db8:9::1/127", "dev", bridge, "nodad")
		}, true},
		{"all flows are deleted", func() { lab.open.Ofctl(t, bridge, "del-flows") }, true},
		{"a flow of the pod is deleted", func() { lab.open.Ofctl(t, bridge, "del-flows", "ip,nw_dst=10.1.0.2") }, true},
		{"bgpd is killed", func() {
			lab.frr.Kill(t, "bgpd")
			lab.frr.Start(t, "bgpd")
		}, true},
		{"zebra is killed", func() {
			lab.frr.Kill(t, "zebra")
			lab.frr.Start(t, "zebra")
		}, true},
		{"a route is deleted", func() { lab.host.IP(t, "route", "flush", "table", fmt.Sprint(railTable)) }, true},
		{"the uplink goes down and up", func() {
			lab.leaf.IP(t, "link", "set", "swp1", "down")
			lab.leaf.IP(t, "link", "set", "swp1", "up")
			lab.leaf.IP(t, "addr", "replace", "2001:db8:9::/127", "dev", "swp1", "nodad")
		}, true},
	} {
		t.Run(fault.name, func(t *testing.T) {
			pings := pod.stream(t, remoteIPv4)
			testlab.Eventually(t, 2*time.Second, "pings run", func() bool { return pod.reaches(remoteIPv4) })
			fault.make()
			began := time.Now()
			lab.becomesReal(t, pod, 30*time.Second)
			took := time.Since(began)
			lost, sent := pings.lost(t)
			t.Logf("all was real %.1f s after the fault's end; %d of %d packets lost", took.Seconds(), lost, sent)
			if lost > 0 && !fault.mayLose {
				t.Errorf("%d of %d packets were lost", lost, sent)
			}
		})
	}
	told, err := os.ReadFile(lab.path("daemon.log"))
	for _, repair := range []string{`"what":"flows","cause":"flows-lost"`, `"what":"routes","cause":"routes-changed"`} {
		if !strings.Contains(string(told), repair) {
			t.Errorf("no repair was told: %s (%v)", repair, err)
		}
	}
}

// becomesReal: flows, routes and packets both ways.
func (lab *nodeLab) becomesReal(t *testing.T, one *pod, within time.Duration) {
	t.Helper()
	testlab.Eventually(t, within, "what is there is what was asked for", func() bool {
		reply, err := lab.client.Check(lab.soon(), &nodev1.CheckRequest{Key: one.add.GetKey(), Parts: one.add.GetParts()})
		return err == nil && len(reply.GetDifferences()) == 0 && lab.leafHas(one) && one.reaches(remoteIPv4)
	})
	lab.mustWork(one)
}

// lose pods, requests and files.
func (lab *nodeLab) lose(t *testing.T) {
	stays, unplugged := lab.newPod(12, "tenant-a"), lab.newPod(13, "tenant-a")
	buried, broken := lab.newPod(14, "tenant-a"), lab.newPod(15, "tenant-a")
	lab.mustAdd(stays, unplugged, buried, broken)

	t.Run("a pod that goes without a DEL", func(t *testing.T) {
		testlab.Run(t, "ip", "netns", "delete", unplugged.Name)
		lab.mustBeGone(unplugged)
		testlab.Eventually(t, 5*time.Second, "its port is gone", func() bool {
			return !strings.Contains(lab.open.Vsctl(t, "list-ports", bridge), "veth13")
		})
	})
	t.Run("a DEL while the daemon is away", func(t *testing.T) {
		lab.kill()
		err := tombstone.Write(lab.path("state/tombstones"), tombstone.Tombstone{
			Key:   attachment.Key{Network: "rail0", ContainerID: "c14", Interface: "eth0"},
			Parts: []attachment.Part{attachment.Flows, attachment.Routes}, Written: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		lab.startReady()
		lab.mustBeGone(buried)
	})
	t.Run("a state file that is damaged", func(t *testing.T) {
		lab.kill()
		files, _ := filepath.Glob(lab.path("state/attachments/*.json"))
		for _, file := range files {
			if content, _ := os.ReadFile(file); strings.Contains(string(content), `"10.1.0.15"`) {
				if err := os.WriteFile(file, content[:len(content)/2], 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		lab.startReady()
		lab.mustBeGone(broken)
		if kept, _ := filepath.Glob(lab.path("state/attachments/damaged/*")); len(kept) != 1 {
			t.Errorf("the damaged file is not kept: %v", kept)
		}
	})
	testlab.Eventually(t, 2*time.Second, "the leaf has the routes", func() bool { return lab.leafHas(stays) })
	lab.mustWork(stays)
}

// fillDisk of the state, and empty it.
func (lab *nodeLab) fillDisk(t *testing.T) {
	one, two := lab.newPod(22, "tenant-a"), lab.newPod(23, "tenant-a")
	lab.mustAdd(one)
	filler := lab.path("state/filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := lab.add(two); err == nil || !strings.Contains(fmt.Sprint(detailsOf(err)), "no space left") {
		t.Errorf("ADD on a full disk: %v %v", err, detailsOf(err))
	}
	if err := lab.remove(one); err != nil {
		t.Errorf("DEL on a full disk: %v %v", err, detailsOf(err))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	lab.mustBeGone(one)
	lab.mustBeGone(two)
	lab.mustAdd(two)
}

// bulk of attachments whose pods are not there: veths that are ports, in the namespace of one pod.
func (lab *nodeLab) bulk(first, count int) []*pod {
	lab.t.Helper()
	holder := testlab.NewNamespace(lab.t, "bulk")
	var links strings.Builder
	ports := []string{}
	var made []*pod
	for n := first; n < first+count; n++ {
		fmt.Fprintf(&links, "link add veth%d type veth peer name e%d netns %s\nlink set veth%d up\n", n, n, holder.Name, n)
		ports = append(ports, "--", "add-port", bridge, fmt.Sprintf("veth%d", n))
		made = append(made, &pod{Namespace: holder, n: n, add: &nodev1.AddRequest{
			Key:   &nodev1.Key{Network: "rail0", ContainerId: fmt.Sprintf("c%d", n), Interface: "eth0"},
			Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
			Pod:   &nodev1.Pod{Namespace: "tenant-a", Name: fmt.Sprintf("pod-%d", n)},
			Netns: holder.Path(), HostInterface: fmt.Sprintf("veth%d", n), Mac: fmt.Sprintf("02:00:00:01:%02x:%02x", n>>8, n&0xff),
			Addresses: []string{fmt.Sprintf("10.1.%d.%d", n>>8, n&0xff)}, Gateways: []string{"10.1.0.1"},
		}})
	}
	batch := lab.host.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(links.String())
	if told, err := batch.CombinedOutput(); err != nil {
		lab.t.Fatalf("%v\n%s", err, told)
	}
	lab.open.Vsctl(lab.t, ports[1:]...)
	return made
}

// leafRoutes counts the pods that the leaf has an IPv4 route to.
func (lab *nodeLab) leafRoutes(pods []*pod) int {
	told, _ := lab.leaf.Try("ip", "-4", "route", "show", "proto", "bgp")
	there := map[string]bool{}
	for _, line := range strings.Split(told, "\n") {
		address, _, _ := strings.Cut(line, " ")
		there[address] = true
	}
	count := 0
	for _, one := range pods {
		if there[one.add.GetAddresses()[0]] {
			count++
		}
	}
	return count
}

// hold many attachments, made and deleted at once.
func (lab *nodeLab) hold(t *testing.T) {
	pods := lab.bulk(100, 200)
	for i := 0; i < len(pods); i += 50 {
		began := time.Now()
		lab.all(pods[i:i+50], func(one *pod) error { return lab.add(one) })
		t.Logf("50 ADDs at once, %d held before: %v", i, time.Since(began))
	}
	testlab.Eventually(t, 5*time.Second, "the leaf has all routes", func() bool { return lab.leafRoutes(pods) == len(pods) })
	lab.kill()
	began := time.Now()
	lab.startReady()
	testlab.Eventually(t, 10*time.Second, "all is real", func() bool {
		reply, err := lab.client.Check(lab.soon(), &nodev1.CheckRequest{Key: pods[0].add.GetKey(), Parts: pods[0].add.GetParts()})
		return err == nil && len(reply.GetDifferences()) == 0
	})
	t.Logf("200 attachments were looked at and found right %v after the daemon's start", time.Since(began))
	if count := lab.leafRoutes(pods); count != len(pods) {
		t.Errorf("the leaf has %d of the routes", count)
	}
	began = time.Now()
	lab.all(pods, func(one *pod) error { return lab.remove(one) })
	t.Logf("200 DELs at once: %v", time.Since(began))
	testlab.Eventually(t, 5*time.Second, "the leaf has none of them", func() bool { return lab.leafRoutes(pods) == 0 })
	for _, one := range []*pod{pods[0], pods[99], pods[199]} {
		address := "=" + one.add.GetAddresses()[0]
		testlab.Eventually(t, 5*time.Second, "no flow names "+address, func() bool {
			return lab.flowsNaming(address+",", address+" ", one.add.GetMac()) == 0
		})
	}
	lab.mustWork(lab.first)
}

func (lab *nodeLab) all(pods []*pod, act func(*pod) error) {
	lab.t.Helper()
	var group sync.WaitGroup
	for _, one := range pods {
		group.Go(func() {
			if err := act(one); err != nil {
				lab.t.Errorf("pod %d: %v %v", one.n, err, detailsOf(err))
			}
		})
	}
	group.Wait()
}
