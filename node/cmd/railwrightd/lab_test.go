package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/kinds"
	"railwright/node/testlab"
)

const (
	bridge    = "br-rail0"
	bridgeMAC = "02:00:00:00:00:01"
	railTable = 7700
)

// nodeLab is a node with one rail, real Open vSwitch, real FRR, and the daemon as a process; and the rail's leaf.
type nodeLab struct {
	t          testing.TB
	host, leaf *testlab.Namespace
	open       *testlab.OpenVSwitch
	frr        *testlab.FRR
	leafFRR    *testlab.FRR
	folder     string
	backend    frrconfig.Backend
	daemon     *exec.Cmd
	ended      chan error
	log        *os.File
	client     nodev1.NodeNetworkClient
	// first pod of a test, that nobody touches later.
	first *pod
}

// program builds the daemon once, with failpoints.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "rwt-build-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "railwrightd")
	told, err := exec.Command("go", "build", "-tags", "failpoints", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, told)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func newLab(t testing.TB, version testlab.FRRVersion, backend frrconfig.Backend) *nodeLab {
	t.Helper()
	lab := &nodeLab{t: t, backend: backend, host: testlab.NewNamespace(t, "host"), leaf: testlab.NewNamespace(t, "leaf")}
	folder, err := os.MkdirTemp("", "rwt-d-")
	if err != nil {
		t.Fatal(err)
	}
	lab.folder = folder
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	for _, namespace := range []*testlab.Namespace{lab.host, lab.leaf} {
		namespace.TakeAddressesAtOnce(t)
	}
	lab.leaf.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	testlab.Cable(t, lab.leaf, "swp1", lab.host, "p0")
	lab.open = testlab.StartOpenVSwitch(t, lab.host)
	lab.open.AddBridge(t, bridge, bridgeMAC)
	lab.open.AddPort(t, bridge, "p0")
	lab.host.IP(t, "addr", "add", "192.0.2.1/31", "dev", bridge)
	lab.host.IP(t, "addr", "add", "2001:db8:9::1/127", "dev", bridge, "nodad")
	lab.leaf.IP(t, "addr", "add", "192.0.2.0/31", "dev", "swp1")
	lab.leaf.IP(t, "addr", "add", "2001:db8:9::/127", "dev", "swp1", "nodad")
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:0:1::/48")}
	lab.leafFRR = testlab.StartFRR(t, lab.leaf, version, frrconfig.Leaf{
		ASN: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), Rail: "rail0", Prefixes: prefixes, MaxPrefixes: 256,
		Ports: []string{"192.0.2.1"},
	}.Text())
	lab.frr = testlab.StartFRR(t, lab.host, version, frrconfig.Node{
		Backend: backend, ASN: 65001, RouterID: netip.MustParseAddr("10.255.1.1"),
		Rails: []frrconfig.Rail{{
			Name: "rail0", Interface: bridge, Peer: netip.MustParseAddr("192.0.2.0"), Table: railTable, Prefixes: prefixes,
		}},
	}.Text())
	lab.writeConfig()
	lab.addRemote()
	return lab
}

// remote addresses of a pod of tenant-a on another node, somewhere behind the leaf.
const (
	remoteIPv4 = "10.1.9.9"
	remoteIPv6 = "fd00:0:1::909"
)

// addRemote makes that pod, and the other node's part in the tenant directory.
func (lab *nodeLab) addRemote() {
	t := lab.t
	t.Helper()
	remote := testlab.NewNamespace(t, "remote")
	remote.TakeAddressesAtOnce(t)
	testlab.Cable(t, lab.leaf, "swp2", remote, "eth0")
	lab.leaf.IP(t, "addr", "add", "192.0.2.100/31", "dev", "swp2")
	lab.leaf.IP(t, "addr", "add", "2001:db8:a::/127", "dev", "swp2", "nodad")
	for _, words := range []string{
		"addr add 192.0.2.101/31 dev eth0", "addr add 2001:db8:a::1/127 dev eth0", "addr add " + remoteIPv4 + "/32 dev lo",
		"addr add " + remoteIPv6 + "/128 dev lo", "route add default via 192.0.2.100 src " + remoteIPv4,
		"-6 route add default via 2001:db8:a:: src " + remoteIPv6,
	} {
		remote.IP(t, strings.Fields(words)...)
	}
	lab.leaf.IP(t, "route", "add", remoteIPv4+"/32", "via", "192.0.2.101")
	lab.leaf.IP(t, "route", "add", remoteIPv6+"/128", "via", "2001:db8:a::1")
	directory, err := kinds.Open(t.Context(), kinds.Config{
		Kind: "folder", Node: "node-2", StateFolder: lab.path("other-state"), Folder: lab.path("shared"),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = directory.Claim(lab.soon(), tenants.Claim{
		Tenant: "ns:tenant-a", Rail: "rail0", Owner: "rail0/remote/eth0",
		Addresses: []netip.Addr{netip.MustParseAddr(remoteIPv4), netip.MustParseAddr(remoteIPv6)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, version, changed := directory.View([]string{"ns:tenant-a"})
			_ = directory.Confirm(ctx, version)
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	t.Cleanup(func() {
		end()
		<-ended
		directory.Close()
	})
}

func (lab *nodeLab) path(name string) string { return filepath.Join(lab.folder, name) }

func (lab *nodeLab) writeConfig() {
	lab.t.Helper()
	shared := lab.path("shared")
	text := fmt.Sprintf(`
node: node-1
state_folder: %s
socket: %s
metrics: 127.0.0.1:9477
netns_folders: [/run/netns]
rails:
- name: rail0
  bridge: %s
  uplink: p0
  leaf: 192.0.2.0
  table: %d
  prefixes: [10.1.0.0/16, "fd00:0:1::/48"]
  max_prefixes: 250
openvswitch: {database: %s, management: %s}
frr: {backend: %s, bgp_socket: %s, asn: 65001}
tenants: {kind: folder, folder: %s}
`, lab.path("state"), lab.path("run/d.sock"), bridge, railTable, lab.open.DatabaseSocket(), lab.open.Folder, lab.backend,
		lab.frr.Socket("bgpd"), shared)
	err := errors.Join(os.MkdirAll(shared, 0o700), os.WriteFile(filepath.Join(shared, "tenants.json"), []byte("{}"), 0o600),
		os.WriteFile(lab.path("railwrightd.yaml"), []byte(text), 0o600))
	if err != nil {
		lab.t.Fatal(err)
	}
}

// start the daemon; it dies at the step named, where one is.
func (lab *nodeLab) start(step failpoint.Name) {
	lab.t.Helper()
	binary, err := program()
	if err != nil {
		lab.t.Fatal(err)
	}
	if lab.log == nil {
		lab.log, err = os.Create(lab.path("daemon.log"))
		if err != nil {
			lab.t.Fatal(err)
		}
		lab.t.Cleanup(lab.end)
	}
	lab.daemon = lab.host.Command(binary, "--config", lab.path("railwrightd.yaml"), "--log-level", "debug")
	lab.daemon.Env = append(os.Environ(), "RAILWRIGHT_FAILPOINT="+string(step))
	lab.daemon.Stdout, lab.daemon.Stderr = lab.log, lab.log
	if err := testlab.Start(lab.daemon); err != nil {
		lab.t.Fatal(err)
	}
	lab.ended = make(chan error, 1)
	go func(daemon *exec.Cmd, ended chan error) { ended <- daemon.Wait() }(lab.daemon, lab.ended)
	connection, err := grpc.NewClient("unix:"+lab.path("run/d.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, MaxDelay: 50 * time.Millisecond},
		}))
	if err != nil {
		lab.t.Fatal(err)
	}
	lab.t.Cleanup(func() { _ = connection.Close() })
	lab.client = nodev1.NewNodeNetworkClient(connection)
}

// startReady starts the daemon and waits until it serves.
func (lab *nodeLab) startReady() {
	lab.t.Helper()
	lab.start("")
	lab.ready()
}

// ready waits until all of the rail is well.
func (lab *nodeLab) ready() {
	lab.t.Helper()
	testlab.Eventually(lab.t, 25*time.Second, "the rail is ready", func() bool {
		reply, err := lab.client.Status(lab.soon(), &nodev1.StatusRequest{})
		if err != nil || len(reply.GetProblems()) > 0 || len(reply.GetRails()) != 1 {
			return false
		}
		rail := reply.GetRails()[0]
		return rail.GetSwitchReady() && rail.GetUplinkUp() && rail.GetSessionEstablished() && len(rail.GetProblems()) == 0
	})
}

func (lab *nodeLab) soon() context.Context {
	ctx, end := context.WithTimeout(context.Background(), 15*time.Second)
	lab.t.Cleanup(end)
	return ctx
}

// kill the daemon as the kernel would.
func (lab *nodeLab) kill() {
	lab.t.Helper()
	_ = lab.daemon.Process.Signal(syscall.SIGKILL)
	lab.died()
}

// died waits for the daemon's end and gives its state.
func (lab *nodeLab) died() *os.ProcessState {
	lab.t.Helper()
	select {
	case <-lab.ended:
		return lab.daemon.ProcessState
	case <-time.After(20 * time.Second):
		lab.t.Fatal("the daemon does not end")
		return nil
	}
}

func (lab *nodeLab) end() {
	if lab.daemon.ProcessState == nil {
		_ = lab.daemon.Process.Signal(syscall.SIGKILL)
		<-lab.ended
	}
	_ = lab.log.Close()
	if told, err := os.ReadFile(lab.path("daemon.log")); err == nil && lab.t.Failed() {
		lines := strings.Split(string(told), "\n")
		lab.t.Logf("the daemon's last lines:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// pod with an interface on the bridge, as the plugins before us leave it.
type pod struct {
	*testlab.Namespace
	n   int
	add *nodev1.AddRequest
}

func (lab *nodeLab) newPod(n int, namespace string) *pod {
	lab.t.Helper()
	face, mac := fmt.Sprintf("veth%d", n), fmt.Sprintf("02:00:00:01:%02x:%02x", n>>8, n&0xff)
	made := &pod{Namespace: lab.open.AddPod(lab.t, bridge, face, mac), n: n}
	for _, words := range []string{
		fmt.Sprintf("addr add 10.1.0.%d/16 dev eth0", n), fmt.Sprintf("addr add fd00:0:1::%x/64 dev eth0", n),
		"route add default via 10.1.0.1", "-6 route add default via fe80::1 dev eth0",
	} {
		made.IP(lab.t, strings.Fields(words)...)
	}
	made.add = &nodev1.AddRequest{
		Key:   &nodev1.Key{Network: "rail0", ContainerId: fmt.Sprintf("c%d", n), Interface: "eth0"},
		Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
		Pod:   &nodev1.Pod{Namespace: namespace, Name: fmt.Sprintf("pod-%d", n)},
		Netns: made.Path(), HostInterface: face, Mac: mac,
		Addresses: []string{fmt.Sprintf("10.1.0.%d", n), fmt.Sprintf("fd00:0:1::%x", n)},
		Gateways:  []string{"10.1.0.1", "fe80::1"},
	}
	return made
}

func (lab *nodeLab) mustAdd(pods ...*pod) {
	lab.t.Helper()
	for _, one := range pods {
		if _, err := lab.client.Add(lab.soon(), one.add); err != nil {
			lab.t.Fatalf("%v: %v", err, detailsOf(err))
		}
	}
}

func (lab *nodeLab) remove(one *pod) error {
	_, err := lab.client.Delete(lab.soon(), &nodev1.DeleteRequest{Key: one.add.GetKey(), Parts: one.add.GetParts()})
	return err
}
