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
	"time"

	"github.com/containernetworking/cni/libcni"

	"railwright/node/testlab"
)

// diskMount is the mount point of the disk that survives power cuts.
const diskMount = "/state"

// noCut is the step name for a boot without a power cut.
const noCut = "none"

// TestPowerCut checks how the daemon recovered from the cut before this boot, and requests the next one during an ADD.
func TestPowerCut(t *testing.T) {
	step := flag.Arg(0)
	if step == "" {
		t.Fatal("the step for the power cut must be given as an argument")
	}
	if output := testlab.Run(t, "findmnt", "-no", "FSTYPE", diskMount); strings.TrimSpace(output) != "ext4" {
		t.Fatalf("%s must be a disk: %s", diskMount, output)
	}
	keepCaches(t)
	node := startNode(t, diskMount)
	node.startDaemon(t)
	if before := readCut(t); before != nil {
		node.wantReconciled(t, before)
	}
	node.wantNothingLeft(t)
	if step != noCut {
		if t.Failed() {
			t.FailNow() // the host would treat a cut as success
		}
		node.cutAt(t, step)
	}
	one, near := node.addPod(t, node.rails[0], 0, "team-a"), node.addPod(t, node.rails[0], 1, "team-a")
	one.mustReach(t, near)
	node.wantHealthy(t, []*pod{one, near})
	one.must(t, "del")
	near.must(t, "del")
	node.wantNothingLeft(t)
}

// keepCaches moves the plugins' caches to the disk, because they persist on a real node.
func keepCaches(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"/var/lib/cni", diskMount + "/cni"} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	testlab.Run(t, "mount", "--bind", diskMount+"/cni", "/var/lib/cni")
}

// reapedWithin is the time in which a daemon that killed itself is known to have ended.
const reapedWithin = 30 * time.Second

const cutRecord = diskMount + "/pod.json"

// cut is the record of the previous boot about the step of its cut and the pod whose ADD was interrupted.
type cut struct{ Step, Pod, Conflist string }

func readCut(t *testing.T) *cut {
	t.Helper()
	content, err := os.ReadFile(cutRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var before cut
	err = errors.Join(err, json.Unmarshal(content, &before), os.Remove(cutRecord))
	if err != nil {
		t.Fatal(err)
	}
	return &before
}

// wantReconciled checks the recovery from a cut. The pod is gone with the machine, so the daemon removes what it has a
// record of: flows, routes and the port. If the power failed before the record was written, ovs-cni's port can be left
// without flows; the daemon removes it once its namespace has been gone for a while. ovs-cni's DEL does not remove it
// if its cache file, which it does not sync, was not on disk yet, and its ADD fails for a VF with such a port.
func (n *node) wantReconciled(t *testing.T, before *cut) {
	t.Helper()
	first := n.left(t)
	t.Logf("cut at %s: %d things are left when the daemon is ready: %v", before.Step, len(first), first)
	n.wantNothingLeft(t)
	for range 2 {
		before.runtimeDeletes(t)
	}
	// Reserved addresses are not asserted: ovs-cni calls DEL of the IPAM only if it has its cache file.
	t.Logf("cut at %s: after the runtime's DEL, host-local has %v", before.Step, n.reservedFiles(t))
}

// reservedFiles returns the files of the addresses that host-local has reserved.
func (n *node) reservedFiles(t *testing.T) []string {
	t.Helper()
	found := files(t, filepath.Join(n.state, "host-local"))
	return slices.DeleteFunc(found, func(path string) bool { return strings.Contains(path, "/last_reserved_ip.") })
}

// containerRuntime returns libcni with the plugins and the network. cnitool cannot call DEL without the pod's
// namespace.
func containerRuntime(t *testing.T, conflist string) (*libcni.CNIConfig, *libcni.NetworkConfigList) {
	t.Helper()
	list, err := libcni.ConfListFromBytes([]byte(conflist))
	if err != nil {
		t.Fatal(err)
	}
	return libcni.NewCNIConfigWithCacheDir([]string{shared + "bin"}, diskMount+"/cni", nil), list
}

func podOf(name, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: name, NetNS: netns, IfName: podInterface, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "team-a"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name},
	}}
}

// runtimeDeletes runs DEL for the pod of the cut, as a runtime does for sandboxes whose namespace is gone.
func (c *cut) runtimeDeletes(t *testing.T) {
	t.Helper()
	plugins, list := containerRuntime(t, c.Conflist)
	if err := plugins.DelNetworkList(t.Context(), list, podOf(c.Pod, "")); err != nil {
		t.Errorf("DEL after the cut at %s: %v", c.Step, err)
	}
}

// cutAt kills the daemon at a step of ADD and then requests the power cut. It does not return.
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
	name := pod.Name + "-" + step // the next boot uses the same namespace names
	content, err := json.Marshal(cut{step, name, string(conflist)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, cutRecord, string(content))
	testlab.Run(t, "sync") // later writes are on the disk only if their writer syncs them
	plugins, list := containerRuntime(t, string(conflist))
	added := make(chan error, 1)
	go func() {
		_, err := plugins.AddNetworkList(t.Context(), list, podOf(name, pod.Path()))
		added <- err
	}()
	select {
	case <-n.ended:
	case err := <-added: // a killed daemon may close the call before it is reaped
		select {
		case <-n.ended:
		case <-time.After(reapedWithin):
			t.Fatalf("ADD must reach the step %s, but it ended: %v", step, err)
		}
	}
	fmt.Printf("\nguest-cut %s\n", step)
	select {} // the host cuts the power
}
