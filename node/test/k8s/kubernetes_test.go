//go:build k8s

package k8s

import "testing"

// TestKubernetes runs all parts on a single cluster. Each part must leave the cluster as it found it, so the test stops
// at the first part that fails.
func TestKubernetes(t *testing.T) {
	cluster := startCluster(t, 2, bothRails...)
	cluster.deploy(t)
	cluster.logTime(t, "railwrightd is ready on all nodes")
	cluster.parts(t)
}

func (c *cluster) parts(t *testing.T) {
	for _, part := range []struct {
		name string
		try  func(*testing.T)
	}{
		{"the pod of the source is ready with both rails, and leaves nothing", c.referencePod},
		{"the examples are accepted", c.examplesAccepted},
		{"benchmarks run over pods of jobs", c.jobs},
		{"tenants are apart", c.tenantsApart},
		{"a pod reaches others with its first packet", c.firstPackets},
		{"both families by host-local", c.hostLocal},
		{"only operators write networks", c.operatorsNetworks},
		{"a daemon speaks for its own node only", c.ownNodeOnly},
		{"restarts lose no packet of untouched pods", c.restarts},
		{"an address changes its tenant while a node cannot hear of it", c.cutOff},
		{"remedies work while pods run", c.remedies},
		{"pods end while the daemon is away", c.daemonAway},
		{"a drain is enough to upgrade from an earlier directory", c.drained},
		{"all of it can be removed", c.removal},
	} {
		if !t.Run(part.name, part.try) {
			t.Fatalf("later parts were skipped\n%s", c.explain())
		}
	}
}
