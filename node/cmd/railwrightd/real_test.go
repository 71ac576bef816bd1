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
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

func detailsOf(err error) []any { return grpcstatus.Convert(err).Details() }

// leafHas reports whether the leaf's kernel has routes to both addresses of a pod.
func (nl *nodeLab) leafHas(p *pod) bool { return nl.leaf.Has(p.add.GetAddresses()...) }

// reaches reports whether an address answers a pod's pings.
func (p *pod) reaches(address string) bool {
	_, err := p.Try("ping", "-c", "2", "-i", "0.05", "-W", "1", address)
	return err == nil
}

// flowsNaming counts the bridge's flows that contain any of the texts.
func (nl *nodeLab) flowsNaming(texts ...string) int {
	count := 0
	for _, line := range strings.Split(nl.OVS.Ofctl(nl.t, nl.rail.Bridge(), "dump-flows"), "\n") {
		for _, text := range texts {
			if strings.Contains(line, text) {
				count++
				break
			}
		}
	}
	return count
}

// leftOf lists traces of a pod on the node and at the leaf.
func (nl *nodeLab) leftOf(p *pod) string {
	var left []string
	addresses := p.add.GetAddresses()
	// The texts include the end of an address, because 10.1.0.2 is a prefix of 10.1.0.22.
	if count := nl.flowsNaming("="+addresses[0]+",", "="+addresses[0]+" ", "="+addresses[1]+",", "="+addresses[1]+" ", p.add.GetMac()); count > 0 {
		left = append(left, fmt.Sprintf("%d flows", count))
	}
	for _, address := range addresses {
		family := "-4"
		if strings.Contains(address, ":") {
			family = "-6"
		}
		if output, _ := nl.Host.Try("ip", family, "route", "show", "table", fmt.Sprint(nl.rail.Table())); strings.Contains(output+" ", address+" ") {
			left = append(left, "route of "+address)
		}
	}
	if count := nl.leaf.Count(addresses...); count > 0 {
		left = append(left, fmt.Sprintf("%d of the leaf's routes", count))
	}
	files, _ := filepath.Glob(nl.Path("state/attachments/*.json"))
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), `"`+addresses[0]+`"`) {
			left = append(left, "record")
		}
	}
	shared, _ := filepath.Glob(nl.shared() + "/*")
	for _, file := range shared {
		content, _ := os.ReadFile(file)
		if _, held, _ := strings.Cut(string(content), `"addresses"`); strings.Contains(strings.SplitN(held, `"released"`, 2)[0], `"`+addresses[0]+`"`) {
			left = append(left, "claim")
		}
	}
	return strings.Join(left, ", ")
}

func (nl *nodeLab) mustBeGone(p *pod) {
	nl.t.Helper()
	testlab.UntilRight(nl.t, func() string {
		if left := nl.leftOf(p); left != "" {
			return fmt.Sprintf("left of pod %d: %s", p.n, left)
		}
		return ""
	})
}

// wrongWith describes a problem of a pod: CHECK finds a difference, the leaf lacks its routes, or it reaches the wrong
// pods. It returns "" if there is none.
func (nl *nodeLab) wrongWith(p *pod) string {
	nl.t.Helper()
	reply, err := nl.Client.Check(railnode.Soon(nl.t), &nodev1.CheckRequest{Key: p.add.GetKey(), Parts: p.add.GetParts()})
	if err != nil || len(reply.GetDifferences()) > 0 {
		return fmt.Sprintf("CHECK of pod %d: %v %v %q", p.n, err, detailsOf(err), reply.GetDifferences())
	}
	ours := p.add.GetPod().GetNamespace() == "tenant-a"
	if !nl.leafHas(p) || p.reaches(remoteIPv4) != ours || p.reaches(remoteIPv6) != ours {
		return fmt.Sprintf("pod %d reaches a pod of tenant-a on the other node: %v", p.n, !ours)
	}
	return ""
}

// mustWork waits until a pod works, because CHECK includes the rail's flows for concurrent changes.
func (nl *nodeLab) mustWork(p *pod) {
	nl.t.Helper()
	testlab.UntilRight(nl.t, func() string { return nl.wrongWith(p) })
}

func TestPodFromADDToDEL(t *testing.T) {
	for _, release := range []railnode.Release{railnode.NewFRR, railnode.OldFRR} {
		t.Run(release.String(), func(t *testing.T) {
			lab := newLab(t, release)
			lab.restart()
			p, second, stranger := lab.newPod(2, "tenant-a"), lab.newPod(3, "tenant-a"), lab.newPod(4, "tenant-b")
			began := time.Now()
			reply, err := lab.Client.Add(railnode.Soon(lab.t), p.add)
			if err != nil {
				t.Fatal(err, detailsOf(err))
			}
			t.Logf("ADD took %v", time.Since(began))
			if reply.GetRail() != "rail0" || reply.GetTenant() != "ns:tenant-a" || reply.GetGatewayMac() != lab.rail.BridgeMAC() {
				t.Errorf("%v", reply)
			}
			testlab.Eventually(t, "routes at the leaf", func() bool { return lab.leafHas(p) })
			lab.mustAdd(second, stranger)
			testlab.Eventually(t, "all routes at the leaf", func() bool { return lab.leafHas(second) && lab.leafHas(stranger) })
			for _, pod := range []*pod{p, second, stranger} {
				lab.mustWork(pod)
			}
			if !p.reaches("10.1.0.3") || !p.reaches("fd00:1::3") {
				t.Error("pods of a tenant do not reach each other")
			}
			if p.reaches("10.1.0.4") || stranger.reaches("fd00:1::2") {
				t.Error("pods of different tenants reach each other")
			}
			listed, err := lab.Client.List(railnode.Soon(lab.t), &nodev1.ListRequest{})
			if err != nil || len(listed.GetAttached()) != 3 {
				t.Fatal(listed, err)
			}
			for _, attached := range listed.GetAttached() {
				if !attached.GetAdvertised() || attached.GetFlowsWanted() == 0 || attached.GetFlowsInstalled() != attached.GetFlowsWanted() {
					t.Errorf("%v", attached)
				}
			}
			began = time.Now()
			if err := lab.remove(p); err != nil {
				t.Fatal(err)
			}
			t.Logf("DEL took %v", time.Since(began))
			lab.mustBeGone(p)
			if err := lab.remove(p); err != nil {
				t.Errorf("second DEL: %v", err)
			}
			lab.FRR.Restart(t, "bgpd")
			testlab.Eventually(t, "routes back at the leaf", func() bool { return lab.leafHas(second) })
			lab.Ready(t)
			// bgpd sends its routes a while after the session is up; until then CHECK rightly reports a difference.
			lab.mustWork(second)
		})
	}
}
