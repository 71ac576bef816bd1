//go:build vmguest

package guest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"railwright/node/testlab"
)

// kept is where what a node keeps through a power cut is: a disk of the host's.
const kept = "/state"

// lastWord is the step at which nothing is cut.
const lastWord = "none"

// TestPowerCut looks what the daemon made of the cut before this boot, and asks for the next one in the middle of an ADD.
func TestPowerCut(t *testing.T) {
	step := flag.Arg(0)
	if step == "" {
		t.Fatal("the step to be cut at is not given")
	}
	if told := testlab.Run(t, "findmnt", "-no", "FSTYPE", kept); strings.TrimSpace(told) != "ext4" {
		t.Fatalf("%s is no disk: %s", kept, told)
	}
	keepCaches(t)
	node := startNode(t, kept)
	node.startDaemon(t)
	if before := readCut(t); before != nil {
		node.wantReconciled(t, before)
	}
	node.wantNothingLeft(t)
	if step != lastWord {
		if t.Failed() {
			t.FailNow() // the host takes a cut for a success
		}
		node.cutAt(t, step)
	}
	one, near := node.addPod(t, node.rails[0], 0, "team-a"), node.addPod(t, node.rails[0], 1, "team-a")
	one.mustReach(t, near)
	node.wantWell(t, []*pod{one, near})
	one.must(t, "del")
	near.must(t, "del")
	node.wantNothingLeft(t)
}

// keepCaches of the plugins on the disk, where a node has them.
func keepCaches(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"/var/lib/cni", kept + "/cni"} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	testlab.Run(t, "mount", "--bind", kept+"/cni", "/var/lib/cni")
}

const begun = kept + "/pod.json"

// cut is what the boot before tells of the pod whose ADD it cut, and at which step.
type cut struct{ Step, Pod, Conflist string }

func readCut(t *testing.T) *cut {
	t.Helper()
	content, err := os.ReadFile(begun)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var before cut
	err = errors.Join(err, json.Unmarshal(content, &before), os.Remove(begun))
	if err != nil {
		t.Fatal(err)
	}
	return &before
}

// wantReconciled: the pod is gone with the machine, so the daemon takes back on its own what it had a record of: flows,
// routes, and the port. Where the power went before there was a record the port may be left, which no flow knows; it is
// removed too, once its namespace has been gone for a while. It is ovs-cni's, whose DEL does nothing where its cache file
// was not on the disk yet (it does not sync it), and whose ADD fails for a VF with such a port.
func (n *node) wantReconciled(t *testing.T, before *cut) {
	t.Helper()
	first := n.left(t)
	t.Logf("cut at %s: %d things are left when the daemon is ready: %v", before.Step, len(first), first)
	n.wantNothingLeft(t)
	for range 2 {
		before.runtimeDeletes(t)
	}
	// Not ours: ovs-cni hands its DEL on to the IPAM only where it has its cache file.
	t.Logf("cut at %s: after the runtime's DEL, host-local has %v", before.Step, n.reserved(t))
}

// reserved addresses, as host-local keeps them: a file each.
func (n *node) reserved(t *testing.T) []string {
	t.Helper()
	found := files(t, filepath.Join(n.state, "host-local"))
	return slices.DeleteFunc(found, func(path string) bool { return strings.Contains(path, "/last_reserved_ip.") })
}

// containerRuntime as containerd is one: cnitool cannot say that a pod's namespace is gone.
func containerRuntime(t *testing.T, conflist string) (*libcni.CNIConfig, *libcni.NetworkConfigList) {
	t.Helper()
	list, err := libcni.ConfListFromBytes([]byte(conflist))
	if err != nil {
		t.Fatal(err)
	}
	return libcni.NewCNIConfigWithCacheDir([]string{shared + "bin"}, kept+"/cni", nil), list
}

func podOf(name, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: name, NetNS: netns, IfName: podInterface, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "team-a"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name},
	}}
}

// runtimeDeletes what it began before the cut, as it does with sandboxes whose namespace is gone.
func (c *cut) runtimeDeletes(t *testing.T) {
	t.Helper()
	plugins, list := containerRuntime(t, c.Conflist)
	if err := plugins.DelNetworkList(t.Context(), list, podOf(c.Pod, "")); err != nil {
		t.Errorf("DEL after the cut at %s: %v", c.Step, err)
	}
}

// cutAt a step of ADD: the daemon is killed there, and the power goes before anything else happens. It does not return.
func (n *node) cutAt(t *testing.T, step string) {
	t.Helper()
	_ = n.daemon.Process.Kill()
	t.Setenv("RAILWRIGHT_FAILPOINT", step)
	n.daemon, n.ended = startService(t, shared+"bin/railwrightd-failpoints", "--config", n.config)
	n.ready(t)
	pod := n.newPod(t, n.rails[0], 0, "team-a")
	conflist, err := os.ReadFile(filepath.Join(pod.networks, pod.rail.name()+".conflist"))
	if err != nil {
		t.Fatal(err)
	}
	name := pod.Name + "-" + step // names of namespaces come again in the next boot
	content, err := json.Marshal(cut{step, name, string(conflist)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, begun, string(content))
	testlab.Run(t, "sync") // so far everything is on the disk; what comes now is there if its writer saw to it
	plugins, list := containerRuntime(t, string(conflist))
	added := make(chan error, 1)
	go func() {
		_, err := plugins.AddNetworkList(t.Context(), list, podOf(name, pod.Path()))
		added <- err
	}()
	select {
	case <-n.ended:
		fmt.Printf("\nguest-cut %s\n", step)
		select {} // the host cuts the power
	case err := <-added:
		t.Fatalf("ADD ended without coming by the step %s: %v", step, err)
	}
}
