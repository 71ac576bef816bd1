//go:build vmguest

package guest

import (
	"fmt"
	"strings"
	"testing"

	"railwright/node/testlab"
)

// offload checks that pods with VFs, attached by the unmodified ovs-cni and our plugin, reach each other, and that
// every data flow is in hardware.
func offload(t *testing.T, node *node) {
	one := node.addPod(t, node.rails[0], 0, "team-a")
	near := node.addPod(t, node.rails[0], 1, "team-a")
	far := node.addPod(t, node.rails[1], 0, "team-a", pluginSettings{"maxRate": maxRate})
	other := node.addPod(t, node.rails[1], 1, "team-b")
	pods := []*pod{one, near, far, other}
	node.wantHealthy(t, pods)

	one.mustReach(t, near)
	one.mustReach(t, far)
	far.mustReach(t, near)
	one.mustNotReach(t, other)
	other.mustNotReach(t, far)
	stream(t, one, near)
	stream(t, one, far)
	node.wantAllInHardware(t, one, near, far)
	node.checkDatapath(t, one)
	node.answersInSoftware(t, one)
	node.policesAt(t, maxRate)
	node.refusesInHardware(t, far, one, other)
	node.dropsSpoofed(t, one, near, far, other)

	for _, pod := range pods {
		pod.must(t, "check")
	}
	for range 2 {
		deletePods(t, pods...)
	}
	fast := node.addPod(t, node.rails[0], 0, "team-a", pluginSettings{"maxRate": highRate})
	node.policesAt(t, highRate)
	deletePods(t, fast)
}

// stream sends a TCP stream from one pod to another.
func stream(t *testing.T, from, to *pod) {
	t.Helper()
	server := to.Command("iperf3", "--server", "--one-off", "--bind", to.addresses[0].String())
	if err := testlab.Start(server); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	testlab.Eventually(t, "iperf3 listens", func() bool {
		output, err := to.Try("ss", "-Hltn", "sport", "=", "5201")
		return err == nil && strings.Contains(output, ":5201")
	})
	output := from.Run(t, "iperf3", "--client", to.addresses[0].String(), "--bytes", "8M")
	for line := range strings.Lines(output) {
		if strings.Contains(line, "receiver") {
			t.Logf("figure: TCP %s to %s: %s (%s)", from.rail.name(), to.rail.name(), strings.TrimSpace(line), emulated)
			return
		}
	}
	t.Errorf("iperf3 must report the receiver's rate:\n%s", output)
}

// wantAllInHardware checks that the datapath reports every data flow of the rails' ports as offloaded, and that each of
// these pods has at least one in both directions.
func (n *node) wantAllInHardware(t *testing.T, pods ...*pod) {
	t.Helper()
	ours := map[string]bool{}
	for _, rail := range n.rails {
		ours[rail.uplink()] = true
		for vf := range rail.vfs {
			ours[rail.representor(vf)] = true
		}
	}
	seen := map[string]int{}
	for _, flow := range n.flows(t) {
		t.Logf("flow in_port=%s offloaded=%v layer=%s packets=%d %s -> %s %s", flow.InPort, flow.Offloaded, flow.Layer,
			flow.Packets, flow.Match, flow.Actions, flow.Why)
		if !ours[flow.InPort] || !isData(flow) {
			continue
		}
		if !flow.Offloaded {
			t.Errorf("data flow of %s must be in hardware: %s", flow.InPort, flow.Why)
		}
		seen[flow.InPort]++
	}
	// All of these pods have sent packets, so each port must have flows.
	for _, pod := range pods {
		for _, port := range []string{pod.rail.representor(pod.vf), pod.rail.uplink()} {
			if seen[port] == 0 {
				t.Errorf("%s has no data flow", port)
			}
		}
	}
	t.Logf("figure: data flows in hardware by port: %v (a driver that takes everything; %s)", seen, emulated)
}

// isData reports whether the flow forwards IP packets of pods, as opposed to this host's BGP. ARP and ND requests to
// the gateway are answered in software, not forwarded: see answersInSoftware.
func isData(flow cachedFlow) bool {
	address := strings.Contains(flow.Match, "10.1.") || strings.Contains(flow.Match, "10.2.") ||
		strings.Contains(flow.Match, "fd00:")
	return address && flow.Actions != "drop" && !isQuestion(flow)
}

func isQuestion(flow cachedFlow) bool {
	return strings.Contains(flow.Match, "eth_type(0x0806)") || strings.Contains(flow.Match, "icmpv6(type=135")
}

func (n *node) checkDatapath(t *testing.T, pod *pod) {
	t.Helper()
	output := appctl(t, "dpctl/dump-flows", "-m", "type=offloaded")
	if !strings.Contains(output, "offloaded:yes") {
		t.Errorf("ovs-appctl lists no offloaded flow:\n%s", output)
	}
	filters := testlab.Run(t, "tc", "-s", "filter", "show", "dev", pod.rail.representor(pod.vf), "ingress")
	if !strings.Contains(filters, "in_hw") || strings.Contains(filters, "not_in_hw") {
		t.Errorf("all tc filters must be in hardware:\n%s", filters)
	}
	t.Logf("tc filters of %s in_hw: %d", pod.rail.representor(pod.vf), strings.Count(filters, "in_hw "))
}

// answersInSoftware deletes the gateway's permanent neighbour entries in a pod, so that the pod must send ARP and ND
// requests, and checks that they are answered.
func (n *node) answersInSoftware(t *testing.T, pod *pod) {
	t.Helper()
	gateways := []string{"10.1.0.1", pod.rail.gateway6()}
	answered := map[string]bool{}
	for index, gateway := range gateways {
		permanent := pod.IP(t, "neighbour", "show", gateway, "dev", podInterface)
		if !strings.Contains(permanent, pod.rail.bridgeMAC()+" PERMANENT") {
			t.Errorf("the plugin did not write the gateway's neighbour entry: %q", permanent)
		}
		pod.IP(t, "neighbour", "del", gateway, "dev", podInterface)
		_, _ = pod.Try("ping", "-c", "2", "-i", "0.5", "-W", "1", n.unusedAddress(index))
		found := pod.IP(t, "neighbour", "show", gateway, "dev", podInterface)
		answered[gateway] = strings.Contains(found, pod.rail.bridgeMAC())
		pod.IP(t, "neighbour", "replace", gateway, "lladdr", pod.rail.bridgeMAC(), "dev", podInterface, "nud", "permanent")
	}
	// The plan has a flow for ND only if ovs-vswitchd accepts it for its datapath.
	answers := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "dump-flows", pod.rail.bridge(), "table=12")
	planned := strings.Contains(answers, "icmp_type=136")
	t.Logf("figure: asked for the gateway, ARP is answered: %v, ND: %v (the plan has a flow for it: %v; the datapath has: %s)",
		answered[gateways[0]], answered[gateways[1]], planned,
		linesWith(appctl(t, "dpif/show-dp-features", pod.rail.bridge()), "ND"))
	if !answered[gateways[0]] || answered[gateways[1]] != planned {
		t.Errorf("ARP answered: %v; ND answered: %v, planned: %v", answered[gateways[0]], answered[gateways[1]], planned)
	}
	for _, flow := range n.flows(t) {
		if isQuestion(flow) {
			t.Logf("asked: offloaded=%v %s -> %.200s; %s", flow.Offloaded, flow.Match, flow.Actions, flow.Why)
		}
	}
}

// unusedAddress returns an unused address behind the gateway, in the other rail's prefix. family 0 is IPv4, 1 IPv6.
func (n *node) unusedAddress(family int) string {
	return []string{"10.2.9.9", "fd00:2::909"}[family]
}

func linesWith(text, word string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "; ")
}

// wantHealthy checks that the daemon's attachments and the leaf's routes match the pods.
func (n *node) wantHealthy(t *testing.T, pods []*pod) {
	t.Helper()
	listed := map[string]attached{}
	for _, one := range n.attachments(t) {
		listed[one.HostInterface] = one
		if one.FlowsInstalled != one.FlowsWanted || one.FlowsWanted == 0 || !one.Advertised {
			t.Errorf("%s: %d of %d flows, advertised %v", one.HostInterface, one.FlowsInstalled, one.FlowsWanted, one.Advertised)
		}
	}
	if len(listed) != len(pods) {
		t.Errorf("%d attachments of %d pods", len(listed), len(pods))
	}
	for _, pod := range pods {
		if _, ok := listed[pod.rail.representor(pod.vf)]; !ok {
			t.Errorf("daemon does not list %s on %s; its bridge has the ports %v", pod.Name,
				pod.rail.representor(pod.vf), pod.rail.ports(t))
		}
		for _, address := range pod.addresses {
			family := "-4"
			if address.Is6() {
				family = "-6"
			}
			testlab.Eventually(t, fmt.Sprintf("the leaf has a route to %s", address), func() bool {
				return strings.Contains(n.leaf.IP(t, family, "route", "show", address.String()), address.String())
			})
		}
	}
}
