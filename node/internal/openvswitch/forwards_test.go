package openvswitch

import (
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// TestALeafForwardsOnceItSendsAPacketBack: without a route in the leaf's kernel nothing counts as forwarded, however often
// it is asked, also where the other family's route is there; and no probe comes to a pod.
func TestALeafForwardsOnceItSendsAPacketBack(t *testing.T) {
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
	rail.seesRoutes(t, numbered, via)
	// An unnumbered rail's host has no address that a leaf could forward from.
	rail.host.IP(t, "addr", "flush", "dev", bridgeName, "scope", "global")
	testlab.Eventually(t, "the host's addresses are gone", func() bool {
		facts, err := rail.client.Facts(t.Context(), rail.rail)
		return err == nil && !slices.ContainsFunc(facts.HostAddresses, netip.Addr.IsGlobalUnicast)
	})
	rail.seesRoutes(t, unnumbered, via)
}

// seesRoutes to the pod come into the leaf's kernel, one family after the other.
func (l *lab) seesRoutes(t *testing.T, pod *labPod, via map[int]string) {
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
			t.Fatalf("the leaf has no route, and these are taken for unreached: %v", missing)
		}
	}
	for number, address := range pod.Addresses {
		testlab.Eventually(t, "the leaf was asked as often as was said", func() bool { return leaf.Count(probes(address)) == wantProbes })
		if number == 0 {
			l.leaf.IP(t, "route", "add", address.String(), "via", via[4])
		}
	}
	testlab.Eventually(t, "the leaf forwards to IPv4", func() bool { return slices.Equal(unreached(), pod.Addresses[1:]) })
	l.leaf.IP(t, "route", "add", pod.Addresses[1].String(), "via", via[6])
	testlab.Eventually(t, "the leaf forwards to both", func() bool { return len(unreached()) == 0 })
	for _, address := range pod.Addresses {
		if came := inside.Count(probes(address)); came > 0 {
			t.Errorf("%d probes for %v came to the pod", came, address)
		}
	}
}

// isProbe for the address, on its way to the leaf or back: what plan.Probe makes, but for what routers change.
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
