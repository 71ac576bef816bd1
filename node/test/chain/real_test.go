package chain

import (
	"os"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/internal/tombstone"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// The first addresses of host-local's ranges in the chain.
var (
	firstPod  = []string{"10.1.0.2", "fd00:1::2"}
	secondPod = []string{"10.1.0.3", "fd00:1::3"}
)

// mustBeGone checks that the addresses have no flow and no route at the leaf, and that the bridge has this number of
// ports.
func (r *realLab) mustBeGone(t *testing.T, ports int, addresses ...string) {
	t.Helper()
	testlab.Eventually(t, "the leaf has no route any more", func() bool { return r.leaf.Count(addresses...) == 0 })
	testlab.Eventually(t, "the bridge has no flow any more", func() bool {
		return r.flows(t, addresses[0])+r.flows(t, addresses[1]) == 0
	})
	if found := r.ports(t); len(found) != ports {
		t.Errorf("ports %v", found)
	}
}

func TestTheSourcesChainLaysTheNetwork(t *testing.T) {
	for _, release := range []railnode.Release{railnode.NewFRR, railnode.OldFRR} {
		t.Run(release.String(), func(t *testing.T) {
			lab := newRealLab(t, 2, release)
			lab.write(t, lab.conflist(t, "0.4.0", sourceChain()...))
			started := time.Now()
			for _, pod := range lab.pods {
				lab.must(t, "add", pod)
			}
			t.Logf("two ADDs of the whole chain by cnitool: %s", time.Since(started))
			testlab.Eventually(t, "the leaf has all routes", func() bool {
				return lab.leaf.Count(append(firstPod, secondPod...)...) == 4
			})
			for _, pair := range []struct {
				pod *testlab.Namespace
				to  []string
			}{{lab.pods[0], secondPod}, {lab.pods[1], firstPod}} {
				for _, address := range pair.to {
					if err := reaches(pair.pod, address); err != nil {
						t.Errorf("%s: %v", address, err)
					}
				}
				wantGatewayKnown(t, pair.pod)
				lab.must(t, "check", pair.pod)
			}
			for range 2 {
				lab.must(t, "del", lab.pods[0])
				lab.mustBeGone(t, 2, firstPod...) // the port of the other pod and the uplink
			}
			lab.must(t, "check", lab.pods[1])
			lab.must(t, "del", lab.pods[1])
			lab.mustBeGone(t, 1, secondPod...)
		})
	}
}

func TestARuntimeAndTheDaemonAgree(t *testing.T) {
	lab := newRealLab(t, 1, railnode.NewFRR)
	runtime := lab.runtime(t, 0, lab.conflist(t, "1.1.0", map[string]any{"type": "railwright-cni", "maxRate": "1Gb/s"}))
	add := func() error {
		_, err := runtime.AddNetworkList(t.Context(), runtime.list, runtime.pod)
		return err
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if err := runtime.CheckNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		t.Error(err)
	}
	if err := runtime.GetStatusNetworkList(t.Context(), runtime.list); err != nil {
		t.Error(err)
	}
	valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c1", IfName: "net1"}}}
	if err := runtime.GCNetworkList(t.Context(), runtime.list, valid); err != nil {
		t.Error(err)
	}
	if lab.leaf.Count(firstPod...) != 2 {
		t.Error("GC deleted a valid attachment")
	}
	// After the flows are deleted, CHECK either reports it, or the daemon has already repaired it.
	lab.OVS.Ofctl(t, bridge, "del-flows")
	if err := runtime.CheckNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		wantError(t, err, 100, "hint:")
	}
	testlab.Eventually(t, "the flows are repaired", func() bool {
		return runtime.CheckNetworkList(t.Context(), runtime.list, runtime.pod) == nil
	})
	if err := runtime.DelNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		t.Error(err)
	}
	lab.mustBeGone(t, 1, firstPod...)
	// Add the same key again, and test STATUS with the uplink's carrier.
	if err := add(); err != nil {
		t.Fatal(err)
	}
	lab.leaf.IP(t, "link", "set", "swp1", "down")
	testlab.Eventually(t, "STATUS tells that the uplink is down", func() bool {
		return runtime.GetStatusNetworkList(t.Context(), runtime.list) != nil
	})
	wantError(t, runtime.GetStatusNetworkList(t.Context(), runtime.list), 51, "rail rail0")
	if err := runtime.DelNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		t.Error(err)
	}
}

func TestADelWithoutTheDaemonIsDoneWhenItIsBack(t *testing.T) {
	lab := newRealLab(t, 1, railnode.NewFRR)
	lab.write(t, lab.conflist(t, "0.4.0", sourceChain()...))
	lab.must(t, "add", lab.pods[0])
	testlab.Eventually(t, "the leaf has the routes", func() bool { return lab.leaf.Count(firstPod...) == 2 })
	lab.Kill(t)
	lab.must(t, "del", lab.pods[0])
	kept, err := os.ReadDir(lab.tombstones())
	if err != nil || len(kept) != 2 {
		t.Fatalf("tombstones %v %v", kept, err)
	}
	if lab.leaf.Count(firstPod...) != 2 {
		t.Error("routes were withdrawn before the daemon started, so the test proves nothing")
	}
	lab.Restart(t)
	lab.mustBeGone(t, 1, firstPod...)
	testlab.Eventually(t, "no tombstone is left", func() bool {
		left, err := tombstone.List(lab.tombstones())
		return err == nil && len(left) == 0
	})
	// The same key can be added again, because its tombstone is gone.
	lab.must(t, "add", lab.pods[0])
	lab.must(t, "check", lab.pods[0])
	lab.must(t, "del", lab.pods[0])
}
