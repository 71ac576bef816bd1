package lab

import (
	"testing"
	"time"
)

// strangers are pods of another tenant that send to the bystanders during faults. Pods of the bystanders' tenant, with
// ports of their own, send to the strangers: ovs-vswitchd stalls for a second when ovsdb-server dies, and datagrams
// sent by the bystanders themselves could then overflow their queues.
type strangers struct{ tries []*probe }

const triesEvery = 100 * time.Millisecond

// newStrangers starts probes on both nodes, over all rails, in both families and both directions.
func newStrangers(t *testing.T, fabric *fabric, pods *bystanders) *strangers {
	t.Helper()
	made := &strangers{}
	for _, node := range fabric.nodes[:2] {
		stranger, partner := node.attachedPod(t, "alone"), node.attachedPod(t, "red-2")
		for rail := range rails {
			family := [rails]int{4, 6}[rail]
			for _, other := range []*pod{pods.here, pods.far} {
				made.tries = append(made.tries, newProbe(t, stranger.rail[rail], other.rail[rail], family, triesEvery))
			}
			made.tries = append(made.tries, newProbe(t, partner.rail[rail], stranger.rail[rail], family, triesEvery))
		}
	}
	return made
}

// end stops the probes and fails the test if any datagram arrived.
func (s *strangers) end(t *testing.T) {
	t.Helper()
	found := total(s.tries, forStragglers)
	if found.arrived > 0 || found.sent == 0 {
		t.Errorf("%d of %d datagrams arrived at pods of another tenant during the faults", found.arrived, found.sent)
	}
	t.Logf("0 of %d datagrams arrived at pods of another tenant, during and after all faults", found.sent)
}
