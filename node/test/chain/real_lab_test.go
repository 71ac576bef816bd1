package chain

import (
	"errors"
	"strings"
	"testing"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// realLab is a lab with railwrightd, FRR and the rail's leaf.
type realLab struct {
	*lab
	leaf *railnode.Leaf
}

func newRealLab(t *testing.T, pods int, release railnode.Release) *realLab {
	t.Helper()
	node := railnode.Alone(t, release, 1)
	node.Configure(t, "{kind: local}")
	node.Restart(t)
	return &realLab{newLabOn(t, node, pods), node.Leaves[0]}
}

// flows returns the number of the bridge's flows that contain the address.
func (r *realLab) flows(t *testing.T, address string) int {
	t.Helper()
	output := r.OVS.Ofctl(t, bridge, "dump-flows")
	return strings.Count(output, address+" ") + strings.Count(output, address+",")
}

func reaches(pod *testlab.Namespace, address string) error {
	output, err := pod.Try("ping", "-c", "3", "-i", "0.05", "-W", "1", address)
	if err != nil {
		return errors.Join(err, errors.New(output))
	}
	return nil
}
