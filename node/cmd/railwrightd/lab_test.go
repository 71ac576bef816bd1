package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/kinds"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

func TestMain(m *testing.M) { os.Exit(railnode.Main(m)) }

// nodeLab is a node with one rail and its leaf, and a pod of another node behind the leaf.
type nodeLab struct {
	*railnode.Node
	t    testing.TB
	rail railnode.Rail
	leaf *railnode.Leaf
}

func newLab(t testing.TB, release railnode.Release) *nodeLab {
	t.Helper()
	node := railnode.Alone(t, release, 1)
	lab := &nodeLab{node, t, node.Rails[0], node.Leaves[0]}
	if err := os.Mkdir(lab.shared(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lab.shared(), "tenants.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	lab.Configure(t, "{kind: folder, folder: "+lab.shared()+"}")
	lab.addRemote()
	return lab
}

// shared returns the folder of the tenant directory.
func (nl *nodeLab) shared() string { return nl.Path("shared") }

// Addresses of a pod of tenant-a on another node behind the leaf.
const (
	remoteIPv4 = "10.1.9.9"
	remoteIPv6 = "fd00:1::909"
)

// addRemote creates that pod, and the other node's part in the tenant directory.
func (nl *nodeLab) addRemote() {
	t := nl.t
	t.Helper()
	remote := testlab.NewNamespace(t, "remote")
	remote.TakeAddressesAtOnce(t)
	testlab.Cable(t, nl.leaf.Namespace, "remote", remote, "eth0")
	nl.leaf.IP(t, "addr", "add", "192.0.2.100/31", "dev", "remote")
	nl.leaf.IP(t, "addr", "add", "2001:db8:a::/127", "dev", "remote", "nodad")
	for _, command := range []string{
		"addr add 192.0.2.101/31 dev eth0", "addr add 2001:db8:a::1/127 dev eth0 nodad", "addr add " + remoteIPv4 + "/32 dev lo",
		"addr add " + remoteIPv6 + "/128 dev lo nodad", "route add default via 192.0.2.100 src " + remoteIPv4,
		"-6 route add default via 2001:db8:a:: src " + remoteIPv6,
	} {
		remote.IP(t, strings.Fields(command)...)
	}
	nl.leaf.IP(t, "route", "add", remoteIPv4+"/32", "via", "192.0.2.101")
	nl.leaf.IP(t, "route", "add", remoteIPv6+"/128", "via", "2001:db8:a::1")
	directory, _, err := kinds.Open(t.Context(), kinds.Config{
		Kind: "folder", Node: "node-2", StateFolder: nl.Path("other-state"), Folder: nl.shared(),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = directory.Claim(railnode.Soon(t), tenants.Claim{
		Tenant: "ns:tenant-a", Rail: "rail0", Owner: "rail0/remote/eth0",
		Addresses: []netip.Addr{netip.MustParseAddr(remoteIPv4), netip.MustParseAddr(remoteIPv6)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(directory.Close)
}

// pod is a pod with an interface on the bridge, as earlier plugins leave it.
type pod struct {
	*testlab.Namespace
	n   int
	add *nodev1.AddRequest
}

func (nl *nodeLab) newPod(n int, namespace string) *pod {
	nl.t.Helper()
	face, mac := fmt.Sprintf("veth%d", n), fmt.Sprintf("02:00:00:01:%02x:%02x", n>>8, n&0xff)
	made := &pod{Namespace: nl.OVS.AddPod(nl.t, nl.rail.Bridge(), face, mac), n: n}
	for _, command := range []string{
		fmt.Sprintf("addr add 10.1.0.%d/16 dev eth0", n), fmt.Sprintf("addr add fd00:1::%x/64 dev eth0 nodad", n),
		"route add default via 10.1.0.1", "-6 route add default via fe80::1 dev eth0",
	} {
		made.IP(nl.t, strings.Fields(command)...)
	}
	made.add = &nodev1.AddRequest{
		Key:   &nodev1.Key{Network: "rail0", ContainerId: fmt.Sprintf("c%d", n), Interface: "eth0"},
		Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
		Pod:   &nodev1.Pod{Namespace: namespace, Name: fmt.Sprintf("pod-%d", n)},
		Netns: made.Path(), HostInterface: face, Mac: mac,
		Addresses: []string{fmt.Sprintf("10.1.0.%d", n), fmt.Sprintf("fd00:1::%x", n)},
		Gateways:  []string{"10.1.0.1", "fe80::1"},
	}
	return made
}

func (nl *nodeLab) mustAdd(pods ...*pod) {
	nl.t.Helper()
	for _, p := range pods {
		if _, err := nl.Client.Add(railnode.Soon(nl.t), p.add); err != nil {
			nl.t.Fatalf("%v: %v", err, detailsOf(err))
		}
	}
}

func (nl *nodeLab) remove(p *pod) error {
	_, err := nl.Client.Delete(railnode.Soon(nl.t), &nodev1.DeleteRequest{Key: p.add.GetKey(), Parts: p.add.GetParts()})
	return err
}

// startAt starts the daemon so that it dies at the step.
func (nl *nodeLab) startAt(step failpoint.Name) {
	nl.t.Helper()
	nl.Start(nl.t, step)
	nl.Ready(nl.t)
}

func (nl *nodeLab) restart() {
	nl.t.Helper()
	nl.Restart(nl.t)
}

func (nl *nodeLab) kill() {
	nl.t.Helper()
	nl.Kill(nl.t)
}
