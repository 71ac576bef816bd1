package railnode

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

// Node with rails: each has a bridge of Open vSwitch with an uplink to its leaf, and FRR announces to all leaves.
type Node struct {
	// N counts from 1.
	N     int
	Host  *testlab.Namespace
	OVS   *testlab.OpenVSwitch
	FRR   *testlab.FRR
	Rails []Rail
	// Leaves by rail; none where the node is cabled to nothing.
	Leaves []*Leaf
	// Folder has the daemon's state, socket, configuration and log.
	Folder string
	// ForwardTimeout of the daemon's configuration; empty: left out.
	ForwardTimeout string
	// Client of the daemon's API, from Configure on.
	Client nodev1.NodeNetworkClient

	release Release
	process *process
}

// New node with so many rails, cabled to these leaves; nothing runs on it yet.
func New(t testing.TB, n, rails int, leaves ...*Leaf) *Node {
	t.Helper()
	made := &Node{N: n, Host: testlab.NewNamespace(t, fmt.Sprintf("node%d", n)), Leaves: leaves}
	// Not t.TempDir: its path can be longer than that of a unix socket may be.
	folder, err := os.MkdirTemp("", "rwt-n-")
	if err != nil {
		t.Fatal(err)
	}
	made.Folder = folder
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	made.Host.TakeAddressesAtOnce(t)
	made.Host.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
	made.keepKernelOut(t)
	for number := range rails {
		made.Rails = append(made.Rails, Rail{Node: n, Number: number})
	}
	for number, leaf := range leaves {
		rail := made.Rails[number]
		testlab.Cable(t, leaf.Namespace, rail.LeafPort(), made.Host, rail.Uplink())
		leaf.GiveAddresses(t, made)
	}
	return made
}

// keepKernelOut of what pods send by ports that ovs-cni makes: with the userspace datapath the host's own kernel sees a
// copy, and would answer it as well.
func (n *Node) keepKernelOut(t testing.TB) {
	t.Helper()
	command := n.Host.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(`
add table inet pods
add chain inet pods in { type filter hook prerouting priority -500; policy accept; }
add rule inet pods in iifname "veth*" drop
add table arp pods
add chain arp pods in { type filter hook input priority 0; policy accept; }
add rule arp pods in iifname "veth*" drop
`)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, output)
	}
}

// Alone is a node with so many rails and the leaf of each. All but the daemon runs, which is to be configured.
func Alone(t testing.TB, release Release, rails int) *Node {
	t.Helper()
	var leaves []*Leaf
	for number := range rails {
		leaves = append(leaves, NewLeaf(t, number))
	}
	made := New(t, 1, rails, leaves...)
	tasks := []func(){func() {
		made.StartSwitch(t)
		made.StartFRR(t, release)
	}}
	for _, leaf := range leaves {
		tasks = append(tasks, func() { leaf.FRR = testlab.StartFRR(t, leaf.Namespace, release.Version, leaf.Text(made)) })
	}
	testlab.AtOnce(t, tasks...)
	return made
}

// Name of the node.
func (n *Node) Name() string { return fmt.Sprintf("node-%d", n.N) }

// Path of something in the node's folder.
func (n *Node) Path(name string) string { return filepath.Join(n.Folder, name) }

// State is the daemon's state folder.
func (n *Node) State() string { return n.Path("state") }

// Socket of the daemon.
func (n *Node) Socket() string { return n.Path("run/d.sock") }

// Config is the daemon's configuration file.
func (n *Node) Config() string { return n.Path("railwrightd.yaml") }

// StartSwitch starts Open vSwitch, with the rails' bridges.
func (n *Node) StartSwitch(t testing.TB) {
	t.Helper()
	n.OVS = testlab.StartOpenVSwitch(t, n.Host)
	for number, rail := range n.Rails {
		n.OVS.AddBridge(t, rail.Bridge(), rail.BridgeMAC())
		if number < len(n.Leaves) {
			n.OVS.AddPort(t, rail.Bridge(), rail.Uplink())
		}
	}
	n.GiveAddresses(t)
}

// GiveAddresses to the bridges: with the userspace datapath they are new interfaces after each start of ovs-vswitchd.
func (n *Node) GiveAddresses(t testing.TB) {
	t.Helper()
	for _, rail := range n.Rails {
		n.Host.IP(t, "link", "set", rail.Bridge(), "up")
		n.Host.IP(t, "addr", "replace", rail.Address().String()+"/31", "dev", rail.Bridge())
		n.Host.IP(t, "addr", "replace", rail.Address6().String()+"/127", "dev", rail.Bridge(), "nodad")
	}
}

// RestartSwitch kills ovs-vswitchd and starts it; it is back once it takes flows.
func (n *Node) RestartSwitch(t testing.TB) {
	t.Helper()
	n.OVS.Kill(t, testlab.Switch)
	n.OVS.Start(t, testlab.Switch)
	n.GiveAddresses(t)
	for _, rail := range n.Rails {
		testlab.Eventually(t, rail.Bridge()+" takes flows", func() bool { return n.OVS.Answers(rail.Bridge()) })
	}
}

// StartFRR with the configuration that an operator is given.
func (n *Node) StartFRR(t testing.TB, release Release) {
	t.Helper()
	n.release = release
	text := frrconfig.Node{
		Backend: release.Backend, ASN: firstNodeASN + uint32(n.N),
		RouterID: netip.AddrFrom4([4]byte{10, 255, 0, byte(n.N)}),
	}
	for _, rail := range n.Rails {
		text.Rails = append(text.Rails, frrconfig.Rail{
			Name: rail.Name(), Interface: rail.Bridge(), Peer: rail.LeafAddress(), Table: rail.Table(), Prefixes: rail.Prefixes(),
		})
	}
	n.FRR = testlab.StartFRR(t, n.Host, release.Version, text.Text())
}

// Configure the daemon; tenants is that part of its configuration, as `{kind: local}`.
func (n *Node) Configure(t testing.TB, tenants string) {
	t.Helper()
	lines := []string{
		"node: " + n.Name(), "state_folder: " + n.State(), "socket: " + n.Socket(), "metrics: 127.0.0.1:9477",
		"netns_folders: [/run/netns]",
		fmt.Sprintf("openvswitch: {database: %s, management: %s}", n.OVS.DatabaseSocket(), n.OVS.Folder),
		fmt.Sprintf("frr: {backend: %s, bgp_socket: %s, asn: %d}", n.release.Backend, n.FRR.Socket("bgpd"), firstNodeASN+n.N),
		"tenants: " + tenants,
	}
	if n.ForwardTimeout != "" {
		lines = append(lines, "forward_timeout: "+n.ForwardTimeout)
	}
	lines = append(lines, "rails:")
	for _, rail := range n.Rails {
		prefixes := rail.Prefixes()
		lines = append(lines, fmt.Sprintf("- {name: %s, bridge: %s, uplink: %s, leaf: %s, table: %d, max_prefixes: %d, prefixes: [%s, %q]}",
			rail.Name(), rail.Bridge(), rail.Uplink(), rail.LeafAddress(), rail.Table(), ownBound, prefixes[0], prefixes[1]))
	}
	if err := os.WriteFile(n.Config(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A daemon that comes anew is found soon.
	connection, err := grpc.NewClient("unix:"+n.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 30 * time.Millisecond},
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Kill(t)
		_ = connection.Close()
		n.tellLog(t)
	})
	n.Client = nodev1.NewNodeNetworkClient(connection)
}
