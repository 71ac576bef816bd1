package openvswitch

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// narrow is the MTU of the link behind the leaf; pods have the usual 1500.
const narrow = 1400

// TestPathMTUErrorsReachPods checks that the leaf's "too long" errors of IPv4 and IPv6 reach the pod and nothing else
// from the leaf does, and that no pod of another tenant can send one.
func TestPathMTUErrorsReachPods(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	pod := rail.addPod(t, 2, "a")
	rail.member("a", pod.Addresses...)
	rail.member("a", remoteIPv4, remoteIPv6)
	for _, end := range []struct {
		namespace *testlab.Namespace
		face      string
	}{{rail.leaf, "swp2"}, {rail.remote, "eth0"}} {
		end.namespace.IP(t, "link", "set", end.face, "mtu", "1400")
	}
	leaf4, leaf6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:ffff::1")

	// Without routers in the configuration, the errors are dropped.
	rail.program(t)
	if knows := rail.learnsMTU(t, pod, remoteIPv4); knows {
		t.Error("pod learned the MTU without configured routers")
	}
	if sumDropped(rail.readCounters(t), plan.DropUnknownSource) == 0 {
		t.Error("the leaf's error was not counted as unknown_source")
	}

	rail.rail.Routers = []netip.Prefix{single(leaf4), single(leaf6)}
	rail.program(t)
	for _, remote := range []netip.Addr{remoteIPv4, remoteIPv6} {
		testlab.Eventually(t, "MTU of the pod's route to "+remote.String(), func() bool {
			return rail.learnsMTU(t, pod, remote)
		})
		if _, err := pod.namespace.Try("ping", "-n", "-c", "3", "-i", "0.05", "-W", "2", "-s", "3000", "-M", "dont", remote.String()); err != nil {
			t.Errorf("long packets do not reach %v: %v", remote, err)
		}
	}
	rail.refusesOtherErrors(t, pod, leaf4, leaf6)
}

// learnsMTU reports whether the pod's kernel knows the MTU of the narrow link after a long packet.
func (l *lab) learnsMTU(t *testing.T, pod *labPod, remote netip.Addr) bool {
	t.Helper()
	_, _ = pod.namespace.Try("ping", "-n", "-c", "1", "-W", "1", "-s", "1440", "-M", "do", remote.String())
	output := pod.namespace.IP(t, "route", "get", remote.String())
	return strings.Contains(output, " mtu 1400")
}

// refusesOtherErrors sends messages that resemble the leaf's error, but are of another type, from another sender or for
// another receiver. None may arrive.
func (l *lab) refusesOtherErrors(t *testing.T, pod *labPod, leaf4, leaf6 netip.Addr) {
	t.Helper()
	leaf, there := testlab.OpenWire(t, l.leaf, "swp1"), testlab.OpenWire(t, pod.namespace, "eth0")
	leafMAC := macOf(t, l.leaf, "swp1")
	message4 := func(from netip.Addr, kind, code byte) []byte {
		return testlab.Ether(gateway, leafMAC, testlab.EtherIPv4, testlab.IPv4(from, pod.ipv4(), 1, 0,
			testlab.ICMP(from, pod.ipv4(), kind, code, binary.BigEndian.AppendUint32(nil, narrow), marker[:])))
	}
	message6 := func(from netip.Addr, kind, code byte) []byte {
		return testlab.Ether(gateway, leafMAC, testlab.EtherIPv6, testlab.IPv6(from, pod.ipv6(), 58, 64,
			testlab.ICMP(from, pod.ipv6(), kind, code, binary.BigEndian.AppendUint32(nil, narrow), marker[:])))
	}
	stranger6 := netip.MustParseAddr("fd00:2::66")
	const each = 100
	worked := func() { askFor(t, leaf, leafMAC, leaf4, netip.MustParseAddr("10.0.0.0")) }
	for name, frame := range map[string][]byte{
		"echo of the leaf": message4(leaf4, 8, 0), "port unreachable": message4(leaf4, 3, 3), "redirect": message4(leaf4, 5, 1),
		"time exceeded": message4(leaf4, 11, 0), "echo of the leaf, IPv6": message6(leaf6, 128, 0),
		"redirect, IPv6": message6(leaf6, 137, 0), "parameter problem, IPv6": message6(leaf6, 4, 0),
		"too long by another sender": message4(outsider, 3, 4), "too long by another sender, IPv6": message6(stranger6, 2, 0),
		"too long by the pod itself": message4(pod.ipv4(), 3, 4),
		"UDP of the leaf": testlab.Ether(gateway, leafMAC, testlab.EtherIPv4, testlab.IPv4(leaf4, pod.ipv4(), 17, 0,
			testlab.UDP(leaf4, pod.ipv4(), 7, 7, marker[:]))),
		"fragment of the leaf": testlab.Ether(gateway, leafMAC, testlab.EtherIPv4, testlab.IPv4(leaf4, pod.ipv4(), 1, 8, marker[:])),
	} {
		for n := range each {
			leaf.Send(t, frame)
			if n%25 == 24 {
				worked()
			}
		}
		if arrived := there.Count(marked); arrived > 0 {
			t.Errorf("%s: %d of %d arrived", name, arrived, each)
			there.Forget()
		}
	}
	for _, frame := range [][]byte{message4(leaf4, 3, 4), message6(leaf6, 2, 0)} {
		for range each / 4 {
			leaf.Send(t, frame)
		}
		worked()
	}
	testlab.Eventually(t, "the leaf's own errors", func() bool { return there.Count(marked) == each/2 })
}

func single(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }
