package lab

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// count returns the packet counters of the bridges of rail 0 by pod and reason. It leaves out flows that only pass
// packets to another table.
func (m *cellMatrix) count(t *testing.T, fabric *fabric) map[counted]uint64 {
	t.Helper()
	found := map[counted]uint64{}
	for _, node := range fabric.nodes {
		node.OVS.Appctl(t, "revalidator/purge") // adds the datapath's counts to the tables' flows
		flows := node.OVS.Ofctl(t, bridgeOf(0), "dump-flows", "--no-names")
		ports := map[uint16]string{0: ""}
		for _, end := range m.ends {
			if end.face != nil && end.node == node {
				ports[numberOf(t, flows, end)] = end.face.port
			}
		}
		for cookie, packets := range testlab.PacketsByCookie(t, flows) {
			number, reason, _ := plan.ParseCookie(cookie)
			if port, known := ports[number]; known {
				found[counted{node, port, reason}] += packets
			}
		}
	}
	return found
}

// numberOf returns the number of a pod's attachment, from the cookie of the flow that delivers to its address.
func numberOf(t *testing.T, flows string, pod *end) uint16 {
	t.Helper()
	for line := range strings.Lines(flows) {
		if strings.Contains(line, "table=40,") && strings.Contains(line, "nw_dst="+pod.ipv4.String()+" ") {
			for cookie := range testlab.PacketsByCookie(t, line) {
				number, _, _ := plan.ParseCookie(cookie)
				return number
			}
		}
	}
	t.Fatalf("no flow delivers to %s:\n%s", pod.name, flows)
	return 0
}

func mustMAC(t *testing.T, text string) attachment.MAC {
	t.Helper()
	mac, err := attachment.ParseMAC(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

func macOfFace(t *testing.T, namespace *testlab.Namespace, face string) attachment.MAC {
	t.Helper()
	return mustMAC(t, namespace.Run(t, "cat", "/sys/class/net/"+face+"/address"))
}

// keepQuiet keeps kernels from answering packets of the matrix, because the answers would be counted too.
func keepQuiet(t *testing.T, fabric *fabric, ends []*end) {
	t.Helper()
	namespaces := map[*testlab.Namespace]bool{fabric.leaves[0].Namespace: true}
	for _, e := range ends {
		if e.face != nil {
			namespaces[e.face.pod.Namespace] = true
		} else if e.host() {
			namespaces[e.node.Host] = true
		}
	}
	for namespace := range maps.Keys(namespaces) {
		command := namespace.Command("nft", "-f", "-")
		command.Stdin = strings.NewReader(fmt.Sprintf(`add table inet cells
add chain inet cells in { type filter hook prerouting priority -450; policy accept; }
add rule inet cells in fib daddr type { local, broadcast, multicast } ip dscp %[1]d drop
add rule inet cells in fib daddr type { local, multicast } ip6 dscp %[1]d drop
add chain inet cells out { type filter hook output priority 0; policy accept; }
add rule inet cells out icmp type redirect drop
add rule inet cells out icmpv6 type nd-redirect drop
`, cellDSCP))
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, output)
		}
		t.Cleanup(func() { _, _ = namespace.Try("nft", "delete", "table", "inet", "cells") })
	}
}
