// Package chain runs the plugins as container runtimes do, with cnitool and libcni, in a chain after the real ovs-cni
// on a real Open vSwitch. The tests use a recorder in place of railwrightd, which records the requests, or railwrightd
// itself.
package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const (
	network = "sriov_pf1_vf"
	podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1;K8S_POD_UID=u-1"
)

var bridge, bridgeMAC = railnode.Rail{Node: 1}.Bridge(), railnode.Rail{Node: 1}.BridgeMAC()

func TestMain(m *testing.M) { os.Exit(railnode.Main(m)) }

// lab is a node with one rail and pods. Its folder holds the plugins (bin), their configurations (net.d), and the
// folder that they see as /var/lib (lib).
type lab struct {
	*railnode.Node
	pods []*testlab.Namespace
	// daemon is the recorder, or nil if railwrightd runs.
	daemon *cnitest.Daemon
	// socket and state are the paths of the daemon in the plugins' configuration.
	socket, state string
}

// newLab creates a lab with a recorder.
func newLab(t *testing.T, pods int) *lab {
	t.Helper()
	node, daemon := railnode.New(t, 1, 1), cnitest.Start(t)
	node.StartSwitch(t)
	made := newLabOn(t, node, pods)
	made.daemon, made.socket, made.state = daemon, daemon.Socket(), daemon.Folder
	return made
}

func newLabOn(t *testing.T, node *railnode.Node, pods int) *lab {
	t.Helper()
	made := &lab{Node: node, socket: node.Socket(), state: node.State()}
	for range pods {
		pod := testlab.NewNamespace(t, "pod")
		pod.TakeAddressesAtOnce(t)
		made.pods = append(made.pods, pod)
	}
	for _, name := range []string{"bin", "net.d", "lib"} {
		if err := os.Mkdir(made.Path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{railnode.Tools(t), railnode.Plugins(t)} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			made.wrap(t, filepath.Join(folder, entry.Name()))
		}
	}
	return made
}

// wrap installs a script that runs the program on the lab's host with the lab's own /var/lib, where libcni, ovs and
// tuning keep caches.
func (l *lab) wrap(t *testing.T, program string) {
	t.Helper()
	const inside = `mount --bind "$1" /var/lib && shift && exec "$@"`
	script := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s sh -c '"+inside+"' sh %s %s \"$@\"\n",
		l.Host.Name, l.Path("lib"), program)
	if err := os.WriteFile(l.bin(filepath.Base(program)), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) bin(name string) string { return filepath.Join(l.Path("bin"), name) }

func (l *lab) tombstones() string { return filepath.Join(l.state, "tombstones") }

// conflist returns a network configuration: ovs with its IPAM, then these plugins.
func (l *lab) conflist(t *testing.T, cniVersion string, behind ...map[string]any) []byte {
	t.Helper()
	plugins := []map[string]any{{
		"cniVersion": cniVersion, "type": "ovs", "bridge": bridge, "socket_file": "unix:" + l.OVS.DatabaseSocket(), "mtu": 1400,
		"link_state_check_interval": 10, "link_state_check_retries": 300,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": l.Path("lib/host-local"),
			"ranges": [][]map[string]string{{{"subnet": "10.1.0.0/24"}}, {{"subnet": "fd00:1::/64"}}},
			"routes": []map[string]string{{"dst": "10.0.0.0/8"}},
		},
	}}
	for _, plugin := range behind {
		if plugin["type"] != "tuning" {
			plugin["socket"], plugin["stateDir"] = l.socket, l.state
		}
		plugins = append(plugins, plugin)
	}
	text, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": network, "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// cnitool runs a verb for a pod and returns its output.
func (l *lab) cnitool(verb string, pod *testlab.Namespace) (string, error) {
	command := exec.Command(l.bin("cnitool"), verb, network, pod.Path())
	command.Env = append(os.Environ(), "CNI_PATH="+l.Path("bin"), "NETCONFPATH="+l.Path("net.d"),
		"CNI_ARGS="+podArgs, "CNI_IFNAME=net1")
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("cnitool %s: %w: %s\n%s", verb, err, output, exit.Stderr)
	}
	return string(output), err
}

func (l *lab) ports(t *testing.T) []string {
	t.Helper()
	return strings.Fields(l.OVS.Vsctl(t, "list-ports", bridge))
}
