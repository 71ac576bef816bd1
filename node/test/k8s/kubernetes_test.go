//go:build k8s

package k8s

import "testing"

// TestKubernetes takes one cluster through a pod's life and its failures. Each part leaves the cluster as it found it, so
// the first that fails is the last.
func TestKubernetes(t *testing.T) {
	cluster := startCluster(t, 2, bothRails...)
	cluster.deploy(t)
	cluster.tell(t, "railwrightd is ready on all nodes")
	cluster.parts(t)
}

func (cluster *cluster) parts(t *testing.T) {
	for _, part := range []struct {
		what string
		try  func(*testing.T)
	}{
		{"the pod of the source is ready with both rails, and leaves nothing", cluster.sourcesPod},
		{"the examples are accepted", cluster.examplesAccepted},
		{"tenants are apart", cluster.tenantsApart},
		{"a pod reaches others with its first packet", cluster.firstPackets},
		{"both families by host-local", cluster.hostLocal},
		{"a daemon speaks for its own node only", cluster.ownNodeOnly},
		{"restarts lose no packet of untouched pods", cluster.restarts},
		{"an address changes its tenant when all nodes know, not before", cluster.cutOff},
		{"pods end while the daemon is away", cluster.daemonAway},
		{"all of it can be removed", cluster.removal},
	} {
		if !t.Run(part.what, part.try) {
			t.Fatalf("the parts after this one were not tried\n%s", cluster.explain())
		}
	}
}
