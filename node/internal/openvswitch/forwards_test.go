package openvswitch

import (
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// TestLeafForwardsOnceProbesReturn checks that without a route in the leaf's kernel no address counts as forwarded,
// even if the other family has a route, and that no probe reaches a pod.
func TestLeafForwardsOnceProbesReturn(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	numbered, unnumbered := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	rail.member("a", numbered.Addresses...)
	rail.member("a", unnumbered.Addresses...)
	rail.program(t)
	via := map[int]string{4: "10.0.0.0", 6: "fd00:ffff::"}
	mac := macOf(t, rail.host, bridgeName)
	for _, arguments := range [][]string{
		{"neigh", "replace", via[4], "lladdr", mac.String(), "dev", "swp1"}, {"neigh", "replace", via[6], "lladdr", mac.String(), "dev", "swp1"},
		{"route", "del", "10.1.0.0/16"}, {"route", "del", "fd00:1::/64"},
	} {
		rail.leaf.IP(t, arguments...)
	}
	rail.checkUnreached(t, numbered, via)
	// On an unnumbered rail the host has no address that a leaf could route to.
	rail.host.IP(t, "addr", "flush", "dev", bridgeName, "scope", "global")
	testlab.Eventually(t, "removal of the host's addresses", func() bool {
		facts, err := rail.client.Facts(t.Context(), rail.rail)
		return err == nil && !slices.ContainsFunc(facts.HostAddresses, netip.Addr.IsGlobalUnicast)
	})
	rail.checkUnreached(t, unnumbered, via)
}

// checkUnreached adds routes to the pod on the leaf, a family at a time, and checks Unreached.
func (l *lab) checkUnreached(t *testing.T, pod *labPod, via map[int]string) {
	t.Helper()
	inside, leaf := testlab.OpenWire(t, pod.namespace, "eth0"), testlab.OpenWire(t, l.leaf, "swp1")
	unreached := func() []netip.Addr {
		missing, err := l.client.Unreached(t.Context(), l.rail, pod.Number, pod.Addresses)
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
	probes := func(address netip.Addr) func([]byte) bool {
		return func(frame []byte) bool { return isProbe(frame, address) }
	}
	const wantProbes = 5
	for range wantProbes {
		if missing := unreached(); !slices.Equal(missing, pod.Addresses) {
			t.Fatalf("leaf has no route, but only these are unreached: %v", missing)
		}
	}
	for number, address := range pod.Addresses {
		testlab.Eventually(t, "probes at the leaf", func() bool { return leaf.Count(probes(address)) == wantProbes })
		if number == 0 {
			l.leaf.IP(t, "route", "add", address.String(), "via", via[4])
		}
	}
	testlab.Eventually(t, "leaf forwards IPv4", func() bool { return slices.Equal(unreached(), pod.Addresses[1:]) })
	l.leaf.IP(t, "route", "add", pod.Addresses[1].String(), "via", via[6])
	testlab.Eventually(t, "leaf forwards both families", func() bool { return len(unreached()) == 0 })
	for _, address := range pod.Addresses {
		if came := inside.Count(probes(address)); came > 0 {
			t.Errorf("%d probes for %v reached the pod", came, address)
		}
	}
}

// isProbe reports whether the frame is a probe for the address, before or after routers changed it.
func isProbe(frame []byte, address netip.Addr) bool {
	made := plan.Probe(plan.Facts{}, address)
	if len(frame) < len(made) {
		return false
	}
	ends, last := 34, 38 // addresses of IPv4 end here, and ports there
	if address.Is6() {
		ends, last = 54, 58
	}
	width := address.BitLen() / 8
	return slices.Equal(frame[ends-width:ends], address.AsSlice()) && slices.Equal(frame[ends:last], made[ends:last]) && frame[12] == made[12]
}
