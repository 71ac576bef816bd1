// Package lab proves the pods' network on a whole fabric: rails, leaves and a spine with real FRR, nodes with real Open
// vSwitch and railwrightd as a process, pods attached by the chain of real plugins as a container runtime runs it.
package lab

import (
	"os"
	"testing"

	"railwright/node/testlab/railnode"
)

func TestMain(m *testing.M) { os.Exit(railnode.Main(m)) }

// shape of a fabric.
type shape struct {
	railnode.Release
	nodes int
	// forward is the daemons' forward_timeout; empty: ADD does not wait until the leaf forwards.
	forward string
}

var (
	newFRR = shape{Release: railnode.NewFRR, nodes: 3}
	oldFRR = shape{Release: railnode.OldFRR, nodes: 2}
)
