package lab

import (
	"os"
	"path/filepath"
	"testing"

	"railwright/node/testlab/railnode"
)

// node of the fabric, with a container runtime.
type node struct {
	*railnode.Node
	fabric  *fabric
	runtime *runtime
}

func bridgeOf(rail int) string { return railnode.Rail{Number: rail}.Bridge() }
func uplinkOf(rail int) string { return railnode.Rail{Number: rail}.Uplink() }
func tableOf(rail int) int     { return railnode.Rail{Number: rail}.Table() }

func (fabric *fabric) newNode(t testing.TB, n int) *node {
	t.Helper()
	made := &node{Node: railnode.New(t, n, rails, fabric.leaves[:]...), fabric: fabric}
	// What is /var/lib for the plugins.
	if err := os.MkdirAll(made.Path("lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	return made
}

func (node *node) startAll(t testing.TB) {
	t.Helper()
	node.StartSwitch(t)
	node.StartFRR(t, node.fabric.Release)
	node.Configure(t, "{kind: folder, folder: "+filepath.Join(node.fabric.folder, "tenants")+"}")
	node.runtime = newRuntime(t, node)
	node.Start(t, "")
}
