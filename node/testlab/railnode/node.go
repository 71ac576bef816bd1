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

// Node is a node whose rails each have an Open vSwitch bridge with an uplink to their leaf. FRR announces to all
// leaves.
type Node struct {
	// N counts from 1.
	N     int
	Host  *testlab.Namespace
	OVS   *testlab.OpenVSwitch
	FRR   *testlab.FRR
	Rails []Rail
	// Leaves holds the leaf of each rail. It is empty if the node is not connected.
	Leaves []*Leaf
	// Folder holds the daemon's state, socket, configuration and log.
	Folder string
	// ForwardTimeout is forward_timeout in the daemon's configuration, or "" to omit it.
	ForwardTimeout string
	// Client calls the daemon's API. Configure sets it.
	Client nodev1.NodeNetworkClient

	release Release
	process *process
	// second is rail 0's second leaf, or nil.
	second *Leaf
}

// New creates node number n with the given number of rails and connects the first rails to the leaves. No process runs
// on it yet.
func New(t testing.TB, n, rails int, leaves ...*Leaf) *Node {
	t.Helper()
	made := &Node{N: n, Host: testlab.NewNamespace(t, fmt.Sprintf("node%d", n)), Leaves: leaves}
	// t.TempDir can return a path that is too long for a unix socket.
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

// ConnectSecond connects rail 0 to a second leaf, over an uplink and with addresses of its own: those that rail 1 would
// have. Call it before the node's processes start.
func (n *Node) ConnectSecond(t testing.TB, leaf *Leaf) {
	t.Helper()
	n.second = leaf
	other := Rail{Node: n.N, Number: 1}
	testlab.Cable(t, leaf.Namespace, other.LeafPort(), n.Host, other.Uplink())
	leaf.IP(t, "addr", "replace", other.LeafAddress().String()+"/31", "dev", other.LeafPort())
	leaf.IP(t, "addr", "replace", other.LeafAddress6().String()+"/127", "dev", other.LeafPort(), "nodad")
}

// keepKernelOut drops what the host's kernel receives from ports that ovs-cni creates: with the userspace datapath the
// kernel receives a copy of each packet and would answer it as well.
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

// Alone creates a single node with the given number of rails and a leaf for each. It starts Open vSwitch and FRR; the
// caller configures and starts the daemon.
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

// Name returns the node's name.
func (n *Node) Name() string { return fmt.Sprintf("node-%d", n.N) }

// Path returns the path of a file in the node's folder.
func (n *Node) Path(name string) string { return filepath.Join(n.Folder, name) }

// State returns the path of the daemon's state folder.
func (n *Node) State() string { return n.Path("state") }

// Socket returns the path of the daemon's socket.
func (n *Node) Socket() string { return n.Path("run/d.sock") }

// Config returns the path of the daemon's configuration file.
func (n *Node) Config() string { return n.Path("railwrightd.yaml") }

// StartSwitch starts Open vSwitch and creates the rails' bridges.
func (n *Node) StartSwitch(t testing.TB) {
	t.Helper()
	n.OVS = testlab.StartOpenVSwitch(t, n.Host)
	for number, rail := range n.Rails {
		n.OVS.AddBridge(t, rail.Bridge(), rail.BridgeMAC())
		if number < len(n.Leaves) {
			n.OVS.AddPort(t, rail.Bridge(), rail.Uplink())
		}
	}
	if n.second != nil {
		n.OVS.AddPort(t, n.Rails[0].Bridge(), Rail{Node: n.N, Number: 1}.Uplink())
	}
	n.GiveAddresses(t)
}

// GiveAddresses sets the addresses of the bridges. With the userspace datapath, each start of ovs-vswitchd creates
// their interfaces anew.
func (n *Node) GiveAddresses(t testing.TB) {
	t.Helper()
	for _, rail := range n.Rails {
		n.Host.IP(t, "link", "set", rail.Bridge(), "up")
		n.Host.IP(t, "addr", "replace", rail.Address().String()+"/31", "dev", rail.Bridge())
		n.Host.IP(t, "addr", "replace", rail.Address6().String()+"/127", "dev", rail.Bridge(), "nodad")
	}
	if other := (Rail{Node: n.N, Number: 1}); n.second != nil {
		n.Host.IP(t, "addr", "replace", other.Address().String()+"/31", "dev", n.Rails[0].Bridge())
		n.Host.IP(t, "addr", "replace", other.Address6().String()+"/127", "dev", n.Rails[0].Bridge(), "nodad")
	}
}

// RestartSwitch kills ovs-vswitchd, starts it again and waits until it answers for every bridge.
func (n *Node) RestartSwitch(t testing.TB) {
	t.Helper()
	n.OVS.Kill(t, testlab.Switch)
	n.OVS.Start(t, testlab.Switch)
	n.GiveAddresses(t)
	for _, rail := range n.Rails {
		testlab.Eventually(t, "ovs-vswitchd answers for "+rail.Bridge(), func() bool { return n.OVS.Answers(rail.Bridge()) })
	}
}

// StartFRR starts FRR with the configuration that `railwrightd frr-config` would print.
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
	var more []string
	if n.second != nil {
		text.Rails[0].Second, text.BFD, more = Rail{Node: n.N, Number: 1}.LeafAddress(), true, []string{"bfdd"}
	}
	n.FRR = testlab.StartFRR(t, n.Host, release.Version, text.Text(), more...)
}

// Configure writes the daemon's configuration and creates Client. tenants is the value of that setting, such as `{kind:
// local}`.
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
	if other := (Rail{Node: n.N, Number: 1}); n.second != nil {
		lines[len(lines)-1] = strings.TrimSuffix(lines[len(lines)-1], "}") +
			fmt.Sprintf(", second: {uplink: %s, leaf: %s}}", other.Uplink(), other.LeafAddress())
	}
	if err := os.WriteFile(n.Config(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Short delays let the client find a restarted daemon quickly.
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
		n.printLog(t)
	})
	n.Client = nodev1.NewNodeNetworkClient(connection)
}
