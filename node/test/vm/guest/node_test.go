//go:build vmguest

package guest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

const (
	daemonSocket = "/run/railwright/railwrightd.sock"
	// betweenLooks is the pause between looks, because each starts a process that keeps an emulated core busy for some
	// tenths of a second.
	betweenLooks = 250 * time.Millisecond
)

// node is this machine with two rails and a leaf that both are connected to.
type node struct {
	rails      []*rail
	host, leaf *testlab.Namespace
	leafFRR    *testlab.FRR
	// state is the folder that persists across boots, config the daemon's configuration file.
	state, config string
	daemon        *exec.Cmd
	ended         chan struct{}
}

// startNode starts the node's services in the order of a real boot, without the daemon.
func startNode(t *testing.T, state string) *node {
	t.Helper()
	for _, name := range []string{"ROOT", "OVS", "FRR"} {
		t.Setenv("RAILWRIGHT_TEST_NEEDS_"+name, "1")
	}
	t.Setenv("RAILWRIGHT_FRR10", "/") // this image contains FRR 10
	started := &node{host: &testlab.Namespace{Name: "host"}, leaf: testlab.NewNamespace(t, "leaf"), state: state}
	testlab.Run(t, "ip", "netns", "attach", started.host.Name, "1")
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", started.host.Name).Run() })
	for _, namespace := range []*testlab.Namespace{started.host, started.leaf} {
		namespace.TakeAddressesAtOnce(t)
	}
	started.leaf.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	started.rails = startNICs(t, started.leaf)
	startOpenVSwitch(t, state, started.rails)
	started.startFRR(t)
	started.writeConfig(t)
	return started
}

func (n *node) startFRR(t *testing.T) {
	t.Helper()
	leaf := frrconfig.Leaf{ASN: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), Rail: "rails", MaxPrefixes: 256}
	own := frrconfig.Node{Backend: frrconfig.KernelTable, ASN: 65001, RouterID: netip.MustParseAddr("10.255.1.1")}
	for _, rail := range n.rails {
		prefixes := []netip.Prefix{netip.MustParsePrefix(rail.prefix()), netip.MustParsePrefix(rail.prefix6())}
		leaf.Prefixes = append(leaf.Prefixes, prefixes...)
		leaf.Ports = append(leaf.Ports, rail.hostAddress())
		own.Rails = append(own.Rails, frrconfig.Rail{
			Name: rail.name(), Interface: rail.bridge(), Peer: netip.MustParseAddr(rail.leafAddress()), Table: rail.table(),
			Prefixes: prefixes,
		})
	}
	n.leafFRR = testlab.StartFRR(t, n.leaf, testlab.FRR10, leaf.Text())
	frr := testlab.StartFRR(t, n.host, testlab.FRR10, own.Text())
	// FRR's service normally creates this folder.
	if err := os.MkdirAll("/run/frr", 0o755); err != nil {
		t.Fatal(err)
	}
	testlab.Run(t, "ln", "-sfn", frr.Socket("bgpd"), "/run/frr/bgpd.vty")
}

func (n *node) writeConfig(t *testing.T) {
	t.Helper()
	text := "node: gpu-1\nstate_folder: " + filepath.Join(n.state, "railwright") + "\nnetns_folders: [/run/netns]\nrails:\n"
	for _, rail := range n.rails {
		text += fmt.Sprintf("- {name: %s, bridge: %s, uplink: %s, leaf: %s, table: %d, prefixes: [%s, %q]}\n", rail.name(),
			rail.bridge(), rail.uplink(), rail.leafAddress(), rail.table(), rail.prefix(), rail.prefix6())
	}
	text += "openvswitch: {database: " + database + ", management: " + ovsFolder + "}\n" +
		"frr: {backend: kernel-table, bgp_socket: /run/frr/bgpd.vty}\ntenants: {kind: local}\n"
	n.config = "/tmp/railwrightd.yaml"
	write(t, n.config, text)
}

// startDaemon starts the daemon and waits until all its rails are healthy.
func (n *node) startDaemon(t *testing.T) {
	t.Helper()
	n.daemon, n.ended = startService(t, shared+"bin/railwrightd", "--config", n.config)
	n.ready(t)
}

func (n *node) ready(t *testing.T) {
	t.Helper()
	told := ""
	t.Cleanup(func() {
		if t.Failed() && told != "" {
			t.Logf("the daemon's status: %s", told)
		}
	})
	took := testlab.Eventually(t, "the daemon and its rails are ready", func() bool {
		said, err := exec.Command(shared+"bin/railwrightd", "status", "--socket", daemonSocket).CombinedOutput()
		told = string(said)
		if err != nil {
			time.Sleep(betweenLooks)
			return false
		}
		told = ""
		return true
	})
	t.Logf("ready %.1f s after the daemon's start", took.Seconds())
}

// attached is an attachment in the daemon's list.
type attached struct {
	Key struct {
		Interface   string `json:"interface"`
		ContainerID string `json:"container_id"`
	} `json:"key"`
	HostInterface  string   `json:"host_interface"`
	Addresses      []string `json:"addresses"`
	FlowsWanted    int      `json:"flows_wanted"`
	FlowsInstalled int      `json:"flows_installed"`
	Advertised     bool     `json:"advertised"`
}

func (n *node) attachments(t *testing.T) []attached {
	t.Helper()
	var reply struct {
		Attached []attached `json:"attached"`
	}
	ask(t, &reply, "list", "--json", "--socket", daemonSocket)
	return reply.Attached
}

// cachedFlow is a datapath flow in the output of `railwrightd flows --json`.
type cachedFlow struct {
	InPort    string   `json:"in_port"`
	Offloaded bool     `json:"offloaded"`
	Layer     string   `json:"layer"`
	Why       string   `json:"why"`
	Packets   uint64   `json:"packets"`
	Used      *float64 `json:"used_s"`
	Match     string   `json:"match"`
	Actions   string   `json:"actions"`
}

func (n *node) flows(t *testing.T) []cachedFlow {
	t.Helper()
	var reply []cachedFlow
	ask(t, &reply, "flows", "--json", "--config", n.config)
	return reply
}

func ask(t *testing.T, reply any, arguments ...string) {
	t.Helper()
	command := exec.Command(shared+"bin/railwrightd", arguments...)
	command.Stderr = os.Stderr
	told, err := command.Output()
	if err != nil {
		t.Fatalf("railwrightd %v: %v", arguments, err)
	}
	if err := json.Unmarshal(told, reply); err != nil {
		t.Fatalf("railwrightd %v: %v\n%s", arguments, err, told)
	}
}
