package lab

import (
	"os"
	"path/filepath"
	"testing"

	"railwright/node/testlab/railnode"
)

// node is a node of the fabric with a container runtime.
type node struct {
	*railnode.Node
	fabric  *fabric
	runtime *runtime
}

func bridgeOf(rail int) string { return railnode.Rail{Number: rail}.Bridge() }
func uplinkOf(rail int) string { return railnode.Rail{Number: rail}.Uplink() }
func tableOf(rail int) int     { return railnode.Rail{Number: rail}.Table() }

func (f *fabric) newNode(t testing.TB, n int) *node {
	t.Helper()
	made := &node{Node: railnode.New(t, n, rails, f.leaves[:]...), fabric: f}
	// The plugins see this folder as /var/lib.
	if err := os.MkdirAll(made.Path("lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	return made
}

func (nd *node) startAll(t testing.TB) {
	t.Helper()
	nd.StartSwitch(t)
	nd.StartFRR(t, nd.fabric.Release)
	nd.ForwardTimeout = nd.fabric.forward
	nd.Configure(t, "{kind: folder, folder: "+filepath.Join(nd.fabric.folder, "tenants")+"}")
	nd.runtime = newRuntime(t, nd)
	nd.Start(t, "")
}
