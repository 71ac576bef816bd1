//go:build k8s

package k8s

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// hostLocal tests the other kind of network: railwright-cni alone, with addresses of both families from host-local,
// whose configuration is on each node.
func (c *cluster) hostLocal(t *testing.T) {
	for _, node := range c.nodes {
		for _, rail := range c.rails {
			name := rail.Name + ".conflist"
			content, err := os.ReadFile(filepath.Join(deployFolder, "examples/host-local/node1", name))
			check(t, err)
			own := strconv.Itoa(200 + node.Number)
			node.write(t, "/etc/cni/multus/net.d/"+name, strings.NewReplacer(
				"."+"1.0/24", "."+own+".0/24", "."+"1.1\"", "."+own+".1\"", "::1:", "::"+own+":").Replace(string(content)))
		}
	}
	c.namespace(t, "tenant3", "host-local")
	c.namespace(t, "tenant4", "host-local")
	before := c.settled(t)
	const networks = "rail0,rail1"
	pods := c.run(t,
		podSpec{Namespace: "tenant3", Name: "one", Node: c.nodes[0].Name, Networks: networks},
		podSpec{Namespace: "tenant3", Name: "same", Node: c.nodes[0].Name, Networks: networks},
		podSpec{Namespace: "tenant3", Name: "other", Node: c.nodes[1].Name, Networks: networks},
		podSpec{Namespace: "tenant4", Name: "same", Node: c.nodes[0].Name, Networks: networks},
		podSpec{Namespace: "tenant4", Name: "other", Node: c.nodes[1].Name, Networks: networks})
	for _, pod := range pods {
		for _, link := range []string{"net1", "net2"} {
			if addresses := pod.Interfaces[link].Addresses; len(addresses) != 2 {
				t.Fatalf("%s has %v on %s, not an address of each family", pod, addresses, link)
			}
		}
	}
	c.checkIsolation(t, pods)
	// These are the largest packets that fit the rails, sent without fragmentation. A path with a smaller MTU drops
	// them all.
	if sent, answered := pods[0].ping(t, "net1", pods[2].Address("net1"), 10, "-M", "do", "-s", "8972"); answered < 9 {
		t.Errorf("%d packets of 9000 bytes were sent, %d answered", sent, answered)
	}
	c.remove(t, pods...)
	c.awaitTraces(t, before)
}
