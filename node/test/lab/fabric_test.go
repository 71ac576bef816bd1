package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const (
	rails    = 2
	spineASN = 65200
)

// fabric has an uplink from each node to the leaf of each rail, and a spine that connects the leaves.
type fabric struct {
	shape
	spine    *testlab.Namespace
	spineFRR *testlab.FRR
	leaves   [rails]*railnode.Leaf
	nodes    []*node
	// folder holds the tenant directory, which all nodes share.
	folder string
	// live are the current attachments.
	live liveSet
}

func railName(rail int) string { return railnode.Rail{Number: rail}.Name() }

// railPrefixes returns the prefixes of a rail's pods on all nodes.
func railPrefixes(rail int) []netip.Prefix { return railnode.Rail{Number: rail}.Prefixes() }

// newFabric starts a fabric and returns once all BGP sessions are established, which takes a few seconds.
func newFabric(t testing.TB, of shape) *fabric {
	t.Helper()
	railnode.Daemon(t) // builds it before the start is timed
	began := time.Now()
	made := &fabric{shape: of, spine: testlab.NewNamespace(t, "spine"), live: liveSet{all: map[string]*attached{}}}
	folder, err := os.MkdirTemp("", "rwt-f-")
	if err == nil {
		err = os.MkdirAll(filepath.Join(folder, "tenants"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "tenants", "tenants.json"), []byte(tenantsFile), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	made.folder = folder
	railnode.Route(t, made.spine)
	for rail := range rails {
		made.leaves[rail] = railnode.NewLeaf(t, rail)
		made.cableToSpine(t, rail)
	}
	for n := 1; n <= of.nodes; n++ {
		made.nodes = append(made.nodes, made.newNode(t, n))
	}
	var tasks []func()
	for _, node := range made.nodes {
		tasks = append(tasks, func() { node.startAll(t) })
	}
	for _, leaf := range made.leaves {
		tasks = append(tasks, func() {
			leaf.FRR = testlab.StartFRR(t, leaf.Namespace, of.Version, made.leafText(leaf))
		})
	}
	tasks = append(tasks, func() { made.spineFRR = testlab.StartFRR(t, made.spine, of.Version, spineText()) })
	testlab.AtOnce(t, tasks...)
	for _, node := range made.nodes {
		node.Ready(t)
	}
	t.Logf("%d nodes, %d leaves and a spine are up after %.1f s", of.nodes, rails, time.Since(began).Seconds())
	return made
}

func (f *fabric) cableToSpine(t testing.TB, rail int) {
	t.Helper()
	leaf, port := f.leaves[rail], fmt.Sprintf("swp%d", rail)
	testlab.Cable(t, leaf.Namespace, "spine", f.spine, port)
	f.spine.IP(t, "addr", "add", fmt.Sprintf("198.51.100.%d/31", 2*rail), "dev", port)
	f.spine.IP(t, "addr", "add", fmt.Sprintf("2001:db8:f:%d::/127", rail), "dev", port, "nodad")
	leaf.IP(t, "addr", "add", fmt.Sprintf("198.51.100.%d/31", 2*rail+1), "dev", "spine")
	leaf.IP(t, "addr", "add", fmt.Sprintf("2001:db8:f:%d::1/127", rail), "dev", "spine", "nodad")
}

// leafText returns a leaf's frr.conf: the text of the shipped examples plus its session with the spine.
func (f *fabric) leafText(leaf *railnode.Leaf) string {
	var nodes []*railnode.Node
	for _, node := range f.nodes {
		nodes = append(nodes, node.Node)
	}
	return leaf.Text(nodes...) + fabricSessions(railnode.FirstLeafASN+leaf.Rail, fmt.Sprintf("198.51.100.%d", 2*leaf.Rail))
}

func spineText() string {
	head := fmt.Sprintf("bgp route-map delay-timer 1\nrouter bgp %d\n bgp router-id 10.255.2.1\n"+
		" no bgp default ipv4-unicast\nexit\n", spineASN)
	return head + fabricSessions(spineASN, "198.51.100.1", "198.51.100.3")
}

// fabricSessions returns the configuration of the sessions between leaves and spine, which announce everything.
func fabricSessions(asn int, peers ...string) string {
	lines := []string{"route-map fabric permit 10", "exit", fmt.Sprintf("router bgp %d", asn), " neighbor FABRIC peer-group",
		" neighbor FABRIC remote-as external", " neighbor FABRIC advertisement-interval 0", " neighbor FABRIC timers 3 9",
		" neighbor FABRIC timers connect 1"}
	for _, peer := range peers {
		lines = append(lines, " neighbor "+peer+" peer-group FABRIC")
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		lines = append(lines, " address-family "+family+" unicast", "  neighbor FABRIC activate",
			"  neighbor FABRIC route-map fabric in", "  neighbor FABRIC route-map fabric out", " exit-address-family")
	}
	return strings.Join(append(lines, "exit"), "\n") + "\n"
}
