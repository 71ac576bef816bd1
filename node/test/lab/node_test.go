package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/failpoint"
	"railwright/node/testlab"
)

// node of the fabric: Open vSwitch with a bridge for each rail, FRR, railwrightd, and a container runtime.
type node struct {
	fabric  *fabric
	n       int
	host    *testlab.Namespace
	open    *testlab.OpenVSwitch
	frr     *testlab.FRR
	runtime *runtime
	// folder has the daemon's state, socket, configuration and log, and what is /var/lib for the plugins.
	folder string
	daemon *daemon
	client nodev1.NodeNetworkClient
}

// daemon that runs, or has.
type daemon struct {
	command *exec.Cmd
	ended   chan struct{}
}

func bridgeOf(rail int) string { return fmt.Sprintf("br-rail%d", rail) }
func uplinkOf(rail int) string { return fmt.Sprintf("p%d", rail) }
func tableOf(rail int) int     { return 7700 + rail }

func (node *node) name() string            { return fmt.Sprintf("node-%d", node.n) }
func (node *node) path(name string) string { return filepath.Join(node.folder, name) }
func (node *node) bridgeMAC(rail int) string {
	return fmt.Sprintf("02:00:00:00:%02x:%02x", node.n, rail+1)
}
func (node *node) leafAddress(rail int) string { return fmt.Sprintf("192.0.2.%d", 100*rail+2*node.n) }
func (node *node) uplinkAddress(rail int) netip.Addr {
	return netip.MustParseAddr(node.leafAddress(rail)).Next()
}

func (fabric *fabric) newNode(t testing.TB, n int) *node {
	t.Helper()
	made := &node{fabric: fabric, n: n, host: testlab.NewNamespace(t, fmt.Sprintf("node%d", n))}
	folder, err := os.MkdirTemp("", "rwt-n-")
	if err == nil {
		err = os.MkdirAll(filepath.Join(folder, "lib"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	made.folder = folder
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	made.host.TakeAddressesAtOnce(t)
	made.host.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
	// The userspace datapath's copies only: what pods send must not be answered by the host's own kernel as well.
	keepOut := made.host.Command("nft", "-f", "-")
	keepOut.Stdin = strings.NewReader(`
add table inet pods
add chain inet pods in { type filter hook prerouting priority -500; policy accept; }
add rule inet pods in iifname "veth*" drop
add table arp pods
add chain arp pods in { type filter hook input priority 0; policy accept; }
add rule arp pods in iifname "veth*" drop
`)
	if told, err := keepOut.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, told)
	}
	for rail, leaf := range fabric.leaves {
		testlab.Cable(t, leaf.Namespace, fmt.Sprintf("swp%d", n), made.host, uplinkOf(rail))
		leaf.giveAddresses(t, made)
	}
	return made
}

// giveAddresses to the leaf's port to a node.
func (leaf *leaf) giveAddresses(t testing.TB, node *node) {
	t.Helper()
	port := fmt.Sprintf("swp%d", node.n)
	leaf.IP(t, "addr", "replace", node.leafAddress(leaf.rail)+"/31", "dev", port)
	leaf.IP(t, "addr", "replace", fmt.Sprintf("2001:db8:%d:%d::/127", leaf.rail, node.n), "dev", port, "nodad")
}

func (node *node) startAll(t testing.TB) {
	t.Helper()
	node.open = testlab.StartOpenVSwitch(t, node.host)
	for rail := range rails {
		node.open.AddBridge(t, bridgeOf(rail), node.bridgeMAC(rail))
		node.open.AddPort(t, bridgeOf(rail), uplinkOf(rail))
	}
	node.giveAddresses(t)
	configuration := frrconfig.Node{
		Backend: node.fabric.backend, ASN: firstNodeASN + uint32(node.n),
		RouterID: netip.MustParseAddr(fmt.Sprintf("10.255.0.%d", node.n)),
	}
	for rail := range rails {
		configuration.Rails = append(configuration.Rails, frrconfig.Rail{
			Name: railName(rail), Interface: bridgeOf(rail), Peer: netip.MustParseAddr(node.leafAddress(rail)), Table: tableOf(rail),
			Prefixes: railPrefixes(rail),
		})
	}
	node.frr = testlab.StartFRR(t, node.host, node.fabric.version, configuration.Text())
	node.configure(t)
	node.runtime = newRuntime(t, node)
	node.start(t, "")
}

// giveAddresses to the bridges: with the userspace datapath they are new interfaces after each start of ovs-vswitchd.
func (node *node) giveAddresses(t testing.TB) {
	t.Helper()
	for rail := range rails {
		node.host.IP(t, "link", "set", bridgeOf(rail), "up")
		node.host.IP(t, "addr", "replace", node.uplinkAddress(rail).String()+"/31", "dev", bridgeOf(rail))
		node.host.IP(t, "addr", "replace", fmt.Sprintf("2001:db8:%d:%d::1/127", rail, node.n), "dev", bridgeOf(rail), "nodad")
	}
}

func (node *node) configure(t testing.TB) {
	t.Helper()
	lines := []string{
		"node: " + node.name(), "state_folder: " + node.path("state"), "socket: " + node.path("run/d.sock"),
		"metrics: 127.0.0.1:9477", "netns_folders: [/run/netns]",
		fmt.Sprintf("openvswitch: {database: %s, management: %s}", node.open.DatabaseSocket(), node.open.Folder),
		fmt.Sprintf("frr: {backend: %s, bgp_socket: %s, asn: %d}", node.fabric.backend, node.frr.Socket("bgpd"), firstNodeASN+node.n),
		fmt.Sprintf("tenants: {kind: folder, folder: %s}", filepath.Join(node.fabric.folder, "tenants")), "rails:",
	}
	for rail := range rails {
		prefixes := railPrefixes(rail)
		lines = append(lines, fmt.Sprintf("- {name: %s, bridge: %s, uplink: %s, leaf: %s, table: %d, max_prefixes: %d, prefixes: [%s, %q]}",
			railName(rail), bridgeOf(rail), uplinkOf(rail), node.leafAddress(rail), tableOf(rail), ownBound, prefixes[0], prefixes[1]))
	}
	if err := os.WriteFile(node.path("railwrightd.yaml"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	connection, err := grpc.NewClient("unix:"+node.path("run/d.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 30 * time.Millisecond},
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	node.client = nodev1.NewNodeNetworkClient(connection)
	t.Cleanup(func() {
		node.kill(t)
		if folder := os.Getenv("RAILWRIGHT_KEEP_LOGS"); folder != "" {
			_ = os.Rename(node.path("daemon.log"), filepath.Join(folder, node.name()+".log"))
		}
		if told, err := os.ReadFile(node.path("daemon.log")); err == nil && t.Failed() {
			lines := strings.Split(string(told), "\n")
			t.Logf("the last lines of %s:\n%s", node.name(), strings.Join(lines[max(0, len(lines)-25):], "\n"))
		}
	})
}

// start the daemon; it dies at the step named, where one is.
func (node *node) start(t testing.TB, step failpoint.Name) {
	t.Helper()
	made, err := build()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(node.path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := node.host.Command(made.daemon, "--config", node.path("railwrightd.yaml"))
	command.Env = append(os.Environ(), "RAILWRIGHT_FAILPOINT="+string(step))
	command.Stdout, command.Stderr = log, log
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	node.daemon = &daemon{command, make(chan struct{})}
	go func(daemon *daemon) {
		_ = daemon.command.Wait()
		close(daemon.ended)
	}(node.daemon)
}

// ready once all rails are well, by the daemon's own word.
func (node *node) ready(t testing.TB) {
	t.Helper()
	var told string
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		ctx, end := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		reply, err := node.client.Status(ctx, &nodev1.StatusRequest{})
		end()
		if err == nil && allWell(reply) {
			return
		}
		told = fmt.Sprint(reply, err)
	}
	t.Fatalf("%s is not ready after 30 s: %s", node.name(), told)
}

func allWell(reply *nodev1.StatusReply) bool {
	for _, rail := range reply.GetRails() {
		if !rail.GetSwitchReady() || !rail.GetUplinkUp() || !rail.GetSessionEstablished() || len(rail.GetProblems()) > 0 {
			return false
		}
	}
	return len(reply.GetRails()) == rails && len(reply.GetProblems()) == 0
}

func (node *node) restart(t testing.TB) {
	t.Helper()
	node.start(t, "")
	node.ready(t)
}

// kill the daemon as the kernel would.
func (node *node) kill(t testing.TB) {
	t.Helper()
	if node.daemon != nil {
		_ = node.daemon.command.Process.Signal(syscall.SIGKILL)
		node.died(t)
	}
}

// died waits for the daemon's end, and says whether it was killed.
func (node *node) died(t testing.TB) bool {
	t.Helper()
	select {
	case <-node.daemon.ended:
		status, is := node.daemon.command.ProcessState.Sys().(syscall.WaitStatus)
		return is && status.Signaled() && status.Signal() == syscall.SIGKILL
	case <-time.After(20 * time.Second):
		t.Fatalf("the daemon of %s does not end", node.name())
		return false
	}
}
