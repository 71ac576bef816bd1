// Package chain runs the plugins as container runtimes do: in a chain behind the real ovs-cni, by cnitool and by libcni,
// on a real Open vSwitch: with a recorder in railwrightd's place, which shows what they ask, and with railwrightd itself.
package chain

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
)

const (
	network   = "sriov_pf1_vf"
	bridge    = "br-rail1"
	bridgeMAC = "02:00:00:00:aa:01"
	podArgs   = "IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1;K8S_POD_UID=u-1"
)

// built are the folders of programs, made once for all tests.
var built = sync.OnceValues(func() (folders [2]string, err error) {
	tools, err := exec.Command("../tools/build").Output()
	if err != nil {
		return folders, fmt.Errorf("test/tools/build: %w%s", err, standardError(err))
	}
	ours, err := os.MkdirTemp("", "rwt-plugins-")
	if err != nil {
		return folders, err
	}
	if told, err := exec.Command("../../cmd/railwright-cni/build", ours).CombinedOutput(); err != nil {
		return folders, fmt.Errorf("cmd/railwright-cni/build: %w\n%s", err, told)
	}
	return [2]string{strings.TrimSpace(string(tools)), ours}, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folders, err := built(); err == nil {
		_ = os.RemoveAll(folders[1])
	}
	os.Exit(code)
}

// programs gives the folder of cnitool and others' plugins, and the folder of ours.
func programs(t testing.TB) (tools, ours string) {
	t.Helper()
	folders, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return folders[0], folders[1]
}

func standardError(err error) string {
	if exit, is := err.(*exec.ExitError); is {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

// lab is a host with Open vSwitch and a bridge for its rail, pods, and the recorder in railwrightd's place.
type lab struct {
	host   *testlab.Namespace
	pods   []*testlab.Namespace
	daemon *cnitest.Daemon
	// openvswitch has the rail's bridge.
	openvswitch *testlab.OpenVSwitch
	// folder has the plugins under their names (bin), configurations (net.d) and what is /var/lib for them (state).
	folder string
}

func newLab(t *testing.T, pods int) *lab {
	t.Helper()
	made := newLabWithoutDaemon(t, pods)
	if err := made.daemon.Serve(); err != nil {
		t.Fatal(err)
	}
	return made
}

func newLabWithoutDaemon(t *testing.T, pods int) *lab {
	t.Helper()
	made := &lab{host: testlab.NewNamespace(t, "host"), daemon: cnitest.New(t), folder: t.TempDir()}
	made.host.TakeAddressesAtOnce(t)
	for range pods {
		pod := testlab.NewNamespace(t, "pod")
		pod.TakeAddressesAtOnce(t)
		made.pods = append(made.pods, pod)
	}
	made.openvswitch = testlab.StartOpenVSwitch(t, made.host)
	made.openvswitch.AddBridge(t, bridge, bridgeMAC)
	for _, name := range []string{"bin", "net.d", "state"} {
		if err := os.Mkdir(filepath.Join(made.folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tools, ours := programs(t)
	for _, folder := range []string{tools, ours} {
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

// wrap a program so that it runs on the lab's host, with a /var/lib of the lab's own: libcni, ovs and tuning keep caches
// there.
func (lab *lab) wrap(t *testing.T, program string) {
	t.Helper()
	const inside = `mount --bind "$1" /var/lib && shift && exec "$@"`
	script := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s sh -c '"+inside+"' sh %s %s \"$@\"\n",
		lab.host.Name, filepath.Join(lab.folder, "state"), program)
	if err := os.WriteFile(lab.bin(filepath.Base(program)), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (lab *lab) bin(name string) string { return filepath.Join(lab.folder, "bin", name) }

// conflist of the network in the shape of the source that the product follows: ovs with its ipam, then these plugins.
func (lab *lab) conflist(t *testing.T, cniVersion string, behind ...map[string]any) []byte {
	t.Helper()
	plugins := []map[string]any{{
		"cniVersion": cniVersion, "type": "ovs", "bridge": bridge, "socket_file": "unix:" + lab.openvswitch.DatabaseSocket(), "mtu": 1400,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(lab.folder, "state", "host-local"),
			"ranges": [][]map[string]string{{{"subnet": "10.1.0.0/24"}}, {{"subnet": "fd00:1::/64"}}},
			"routes": []map[string]string{{"dst": "10.0.0.0/8"}},
		},
	}}
	for _, plugin := range behind {
		if plugin["type"] != "tuning" {
			plugin["socket"], plugin["stateDir"] = lab.daemon.Socket(), lab.daemon.Folder
		}
		plugins = append(plugins, plugin)
	}
	text, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": network, "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// cnitool does one verb for a pod.
func (lab *lab) cnitool(verb string, pod *testlab.Namespace) (string, error) {
	command := exec.Command(lab.bin("cnitool"), verb, network, pod.Path())
	command.Env = append(os.Environ(), "CNI_PATH="+filepath.Join(lab.folder, "bin"), "NETCONFPATH="+filepath.Join(lab.folder, "net.d"),
		"CNI_ARGS="+podArgs, "CNI_IFNAME=net1")
	told, err := command.Output()
	if err != nil {
		return string(told), fmt.Errorf("cnitool %s: %w: %s%s", verb, err, told, standardError(err))
	}
	return string(told), nil
}

func (lab *lab) ports(t *testing.T) []string {
	t.Helper()
	return strings.Fields(lab.openvswitch.Vsctl(t, "list-ports", bridge))
}
