package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"railwright/node/testlab/railnode"
)

// runtime is the CNI part of a node's container runtime: libcni starts each plugin on the node in a separate process.
type runtime struct {
	invoke.DefaultExec
	cni   *libcni.CNIConfig
	lists [rails]*libcni.NetworkConfigList
	// impatient has the same lists with a short timeout, for calls while no daemon runs.
	impatient [rails]*libcni.NetworkConfigList
	programs  chan func()

	mutex sync.Mutex
	// spent holds the elapsed times of the plugins' processes by type and verb.
	spent map[string][]time.Duration
}

// newRuntime creates a runtime with a thread in the node's network namespace and in a mount namespace with the node's
// own /var/lib. Processes that the thread starts inherit both.
func newRuntime(t testing.TB, node *node) *runtime {
	t.Helper()
	made := &runtime{programs: make(chan func()), spent: map[string][]time.Duration{}}
	moved := make(chan error)
	go onOwnThread(func() {
		moved <- moveIn(node.Host.Path(), node.Path("lib"))
		for program := range made.programs {
			program()
		}
	})
	if err := <-moved; err != nil {
		t.Fatalf("start thread on %s: %v", node.Name(), err)
	}
	t.Cleanup(func() { close(made.programs) })
	made.cni = libcni.NewCNIConfigWithCacheDir([]string{railnode.Plugins(t), railnode.Tools(t)}, node.Path("cache"), made)
	list := func(rail int, plugins []map[string]any) *libcni.NetworkConfigList {
		read, err := libcni.ConfListFromBytes(node.conflist(t, rail, plugins...))
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	for rail := range rails {
		made.lists[rail] = list(rail, ourPlugins(rail))
		hasty := ourPlugins(rail)
		for _, plugin := range hasty {
			if plugin["type"] != "tuning" {
				plugin["connectTimeoutSeconds"] = 0.05
			}
		}
		made.impatient[rail] = list(rail, hasty)
	}
	return made
}

// onOwnThread runs do on a thread that ends with it. It never uses the process's first thread, whose namespace counts
// as that of the whole process.
func onOwnThread(do func()) {
	goruntime.LockOSThread() // never unlocked, so that the thread ends
	if unix.Gettid() != os.Getpid() {
		do()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		onOwnThread(do)
	}()
	<-ended
	goruntime.UnlockOSThread() // unused, so that it can be reused
}

func moveIn(network, varLib string) error {
	there, err := netns.GetFromPath(network)
	if err != nil {
		return err
	}
	defer there.Close()
	return errors.Join(netns.Set(there), unix.Unshare(unix.CLONE_NEWNS),
		// Later mounts of the host (pods' namespaces) propagate here, but none of ours propagate to the host.
		unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""), unix.Mount(varLib, "/var/lib", "", unix.MS_BIND, ""))
}

// ourPlugins returns the plugins after ovs: for rail 0 tuning and the two providers, for rail 1 railwright-cni, which
// does both.
func ourPlugins(rail int) []map[string]any {
	if rail == 0 {
		return []map[string]any{
			{"type": "tuning", "sysctl": map[string]string{"net.ipv4.conf.net1.arp_notify": "1"}},
			{"type": "ovs-provider-cli"}, {"type": "frr-provider-cli"},
		}
	}
	return []map[string]any{{"type": "railwright-cni"}}
}

// conflist returns the configuration of a rail's network: ovs with host-local, then these plugins.
func (nd *node) conflist(t testing.TB, rail int, behind ...map[string]any) []byte {
	t.Helper()
	var to []map[string]string
	for _, prefix := range railPrefixes(rail) {
		to = append(to, map[string]string{"dst": prefix.String()})
	}
	plugins := []map[string]any{{
		"type": "ovs", "bridge": bridgeOf(rail), "socket_file": "unix:" + nd.OVS.DatabaseSocket(), "mtu": 1400,
		"link_state_check_interval": 10, "link_state_check_retries": 300,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": nd.Path("ipam"), "routes": to,
			"ranges": [][]map[string]string{
				{{"subnet": fmt.Sprintf("10.%d.%d.0/24", rail+1, nd.N)}}, {{"subnet": fmt.Sprintf("fd00:%d:%d::/64", rail+1, nd.N)}},
			},
		},
	}}
	for _, plugin := range behind {
		if plugin["type"] != "tuning" {
			plugin["socket"], plugin["stateDir"] = nd.Path("run/d.sock"), nd.Path("state")
		}
		plugins = append(plugins, plugin)
	}
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": railName(rail), "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// delete runs DEL of the whole chain for an attachment.
func (r *runtime) delete(t testing.TB, list *libcni.NetworkConfigList, of *libcni.RuntimeConf) error {
	ctx, cancel := boundedContext(t)
	defer cancel()
	return r.cni.DelNetworkList(ctx, list, of)
}

// start starts a command on the node.
func (r *runtime) start(command *exec.Cmd) error {
	started := make(chan error)
	r.programs <- func() { started <- command.Start() }
	return <-started
}

// ExecPlugin runs a plugin on the node and records how long it took.
func (r *runtime) ExecPlugin(ctx context.Context, path string, input []byte, environment []string) ([]byte, error) {
	var stdout, complaint bytes.Buffer
	command := exec.CommandContext(ctx, path)
	command.Env, command.Stdin, command.Stdout, command.Stderr = environment, bytes.NewReader(input), &stdout, &complaint
	began := time.Now()
	if err := r.start(command); err != nil {
		return nil, err
	}
	err := command.Wait()
	took := time.Since(began)
	r.mutex.Lock()
	name := filepath.Base(path) + " " + verbOf(environment)
	r.spent[name] = append(r.spent[name], took)
	r.mutex.Unlock()
	if err == nil {
		return stdout.Bytes(), nil
	}
	refusal := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), refusal) == nil && refusal.Code > 0 {
		return nil, refusal
	}
	return nil, fmt.Errorf("%s: %w: %s%s", filepath.Base(path), err, stdout.String(), complaint.String())
}

func verbOf(environment []string) string {
	for _, pair := range environment {
		if len(pair) > 12 && pair[:12] == "CNI_COMMAND=" {
			return pair[12:]
		}
	}
	return ""
}
