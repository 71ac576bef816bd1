package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

func detailsOf(err error) []any { return grpcstatus.Convert(err).Details() }

// leafHas both addresses of a pod in its kernel's routes.
func (lab *nodeLab) leafHas(one *pod) bool {
	ipv4, _ := lab.leaf.Try("ip", "route", "show", one.add.GetAddresses()[0])
	ipv6, _ := lab.leaf.Try("ip", "-6", "route", "show", one.add.GetAddresses()[1])
	return strings.Contains(ipv4, "via") && strings.Contains(ipv6, "via")
}

// reaches says whether packets of a pod come back from an address.
func (one *pod) reaches(address string) bool {
	_, err := one.Try("ping", "-c", "2", "-i", "0.05", "-W", "1", address)
	return err == nil
}

// flowsNaming counts the bridge's flows that name any of the texts.
func (lab *nodeLab) flowsNaming(texts ...string) int {
	count := 0
	for _, line := range strings.Split(lab.open.Ofctl(lab.t, bridge, "dump-flows"), "\n") {
		for _, text := range texts {
			if strings.Contains(line, text) {
				count++
				break
			}
		}
	}
	return count
}

// leftOf a pod, anywhere on the node and at the leaf; empty: nothing.
func (lab *nodeLab) leftOf(one *pod) string {
	var left []string
	addresses := one.add.GetAddresses()
	// A MAC and addresses that end where they do: 10.1.0.2 is in 10.1.0.22 too.
	if count := lab.flowsNaming("="+addresses[0]+",", "="+addresses[0]+" ", "="+addresses[1]+",", "="+addresses[1]+" ", one.add.GetMac()); count > 0 {
		left = append(left, fmt.Sprintf("%d flows", count))
	}
	for _, address := range addresses {
		family := "-4"
		if strings.Contains(address, ":") {
			family = "-6"
		}
		if told, _ := lab.host.Try("ip", family, "route", "show", "table", fmt.Sprint(railTable)); strings.Contains(told+" ", address+" ") {
			left = append(left, "route of "+address)
		}
		if told, _ := lab.leaf.Try("ip", family, "route", "show", address); strings.Contains(told, "via") {
			left = append(left, "leaf's route of "+address)
		}
	}
	files, _ := filepath.Glob(lab.path("state/attachments/*.json"))
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), `"`+addresses[0]+`"`) {
			left = append(left, "record")
		}
	}
	shared, _ := filepath.Glob(lab.path("shared/*"))
	for _, file := range shared {
		content, _ := os.ReadFile(file)
		if _, held, _ := strings.Cut(string(content), `"addresses"`); strings.Contains(strings.SplitN(held, `"released"`, 2)[0], `"`+addresses[0]+`"`) {
			left = append(left, "claim")
		}
	}
	return strings.Join(left, ", ")
}

func (lab *nodeLab) mustBeGone(one *pod) {
	lab.t.Helper()
	var left string
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
		if left = lab.leftOf(one); left == "" {
			return
		}
	}
	lab.t.Fatalf("left of pod %d after 5 s: %s", one.n, left)
}

// mustWork: the pod reaches the leaf both ways, the leaf knows it, and CHECK finds nothing.
func (lab *nodeLab) mustWork(one *pod) {
	lab.t.Helper()
	reply, err := lab.client.Check(lab.soon(), &nodev1.CheckRequest{Key: one.add.GetKey(), Parts: one.add.GetParts()})
	if err != nil || len(reply.GetDifferences()) > 0 {
		lab.t.Fatalf("CHECK of pod %d: %v %v %q", one.n, err, detailsOf(err), reply.GetDifferences())
	}
	ours := one.add.GetPod().GetNamespace() == "tenant-a"
	if !lab.leafHas(one) || one.reaches(remoteIPv4) != ours || one.reaches(remoteIPv6) != ours {
		lab.t.Fatalf("pod %d reaches a pod of tenant-a on the other node: %v is wrong", one.n, !ours)
	}
}

func TestAPodIsServedFromADDToDEL(t *testing.T) {
	for name, combination := range map[string]struct {
		version testlab.FRRVersion
		backend frrconfig.Backend
	}{"FRR 10 kernel-table": {testlab.FRR10, frrconfig.KernelTable}, "FRR 8 vty": {testlab.FRR8, frrconfig.Vty}} {
		t.Run(name, func(t *testing.T) {
			lab := newLab(t, combination.version, combination.backend)
			lab.startReady()
			one, two, stranger := lab.newPod(2, "tenant-a"), lab.newPod(3, "tenant-a"), lab.newPod(4, "tenant-b")
			began := time.Now()
			reply, err := lab.client.Add(lab.soon(), one.add)
			if err != nil {
				t.Fatal(err, detailsOf(err))
			}
			t.Logf("ADD took %v", time.Since(began))
			if reply.GetRail() != "rail0" || reply.GetTenant() != "ns:tenant-a" || reply.GetGatewayMac() != bridgeMAC {
				t.Errorf("%v", reply)
			}
			testlab.Eventually(t, 2*time.Second, "the leaf has the routes", func() bool { return lab.leafHas(one) })
			lab.mustAdd(two, stranger)
			testlab.Eventually(t, 2*time.Second, "the leaf has all routes", func() bool { return lab.leafHas(two) && lab.leafHas(stranger) })
			for _, pod := range []*pod{one, two, stranger} {
				lab.mustWork(pod)
			}
			if !one.reaches("10.1.0.3") || !one.reaches("fd00:0:1::3") {
				t.Error("pods of one tenant do not reach each other")
			}
			if one.reaches("10.1.0.4") || stranger.reaches("fd00:0:1::2") {
				t.Error("pods of two tenants reach each other")
			}
			listed, err := lab.client.List(lab.soon(), &nodev1.ListRequest{})
			if err != nil || len(listed.GetAttached()) != 3 {
				t.Fatal(listed, err)
			}
			for _, attached := range listed.GetAttached() {
				if !attached.GetAdvertised() || attached.GetFlowsWanted() == 0 || attached.GetFlowsInstalled() != attached.GetFlowsWanted() {
					t.Errorf("%v", attached)
				}
			}
			began = time.Now()
			if err := lab.remove(one); err != nil {
				t.Fatal(err)
			}
			t.Logf("DEL took %v", time.Since(began))
			lab.mustBeGone(one)
			if err := lab.remove(one); err != nil {
				t.Errorf("a second DEL: %v", err)
			}
			lab.frr.Kill(t, "bgpd")
			lab.frr.Start(t, "bgpd")
			lab.becomesReal(t, two, 20*time.Second)
		})
	}
}
