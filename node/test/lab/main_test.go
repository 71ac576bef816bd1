// Package lab tests the pods' network on a whole fabric: rails, leaves and a spine with real FRR, nodes with real Open
// vSwitch and a railwrightd process, and pods attached by the real plugins as a container runtime calls them.
package lab

import (
	"os"
	"testing"

	"railwright/node/testlab/railnode"
)

func TestMain(m *testing.M) { os.Exit(railnode.Main(m)) }

// shape describes a fabric.
type shape struct {
	railnode.Release
	nodes int
	// forward is the daemons' forward_timeout. If empty, ADD does not wait until the leaf forwards.
	forward string
}

var (
	newFRR = shape{Release: railnode.NewFRR, nodes: 3}
	oldFRR = shape{Release: railnode.OldFRR, nodes: 2}
)
