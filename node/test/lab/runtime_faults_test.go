package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

func tableText(rail int) string { return fmt.Sprint(tableOf(rail)) }

// emptyIPAM deletes host-local's records, as a reboot does: its default folder is on a temporary file system.
func (nd *node) emptyIPAM(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(nd.Path("ipam")); err != nil {
		t.Fatal(err)
	}
}

// unusualRuntimes tests call sequences of runtimes other than one ADD and one DEL.
func unusualRuntimes(t *testing.T, fabric *fabric) {
	node := fabric.nodes[0]
	t.Run("DEL twice", func(t *testing.T) {
		pod := node.newPod(t, "red-1")
		if err := pod.attach(t, 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := pod.detach(t, 0); err != nil {
				t.Error(err)
			}
			fabric.mustSettle(t)
		}
	})
	t.Run("DEL without ADD", func(t *testing.T) {
		for rail := range rails {
			if err := node.newPod(t, "red-1").detach(t, rail); err != nil {
				t.Error(err)
			}
		}
		fabric.mustSettle(t)
	})
	t.Run("DEL after the runtime lost its cache", func(t *testing.T) {
		pod := node.newPod(t, "red-1")
		if err := pod.attach(t, 1); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{"cache", "lib/cni"} {
			if err := os.RemoveAll(node.Path(folder)); err != nil {
				t.Fatal(err)
			}
		}
		port := pod.rail[1].port
		if err := pod.detach(t, 1); err != nil {
			t.Error(err)
		}
		// ovs-cni without its cache leaves the port, which counts as used until the pod ends. The test deletes it.
		if err := os.RemoveAll(node.Path("ipam/" + railName(1))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(node.OVS.Vsctl(t, "list-ports", bridgeOf(1)), port) {
			node.OVS.Vsctl(t, "del-port", bridgeOf(1), port)
			t.Log("ovs-cni left the port, as it does without its cache")
		}
		fabric.mustSettle(t)
	})
	t.Run("ADD twice", func(t *testing.T) { addTwice(t, node) })
	t.Run("50 ADDs and 50 DELs at once", func(t *testing.T) { manyAtOnce(t, fabric) })
}

// addTwice checks that our plugin answers a repeated ADD with the same result and refuses another pod under the same
// key.
func addTwice(t *testing.T, node *node) {
	pod := node.attachedPod(t, "red-1", 1)
	face := pod.rail[1]
	call := cnitest.Call{
		Program: filepath.Join(railnode.Plugins(t), "railwright-cni"), Command: "ADD", ContainerID: pod.id, Interface: faceOf(1),
		Netns: pod.Path(), Args: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=u-%s", pod.namespace, pod.name, pod.id),
		Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"railwright-cni","socket":%q,"stateDir":%q,"prevResult":{
"cniVersion":"1.0.0","interfaces":[{"name":%q},{"name":%q,"mac":%q,"sandbox":%q}],
"ips":[{"address":"%s/24","gateway":"10.2.%d.1","interface":1},{"address":"%s/64","gateway":"fd00:2:%d::1","interface":1}]}}`,
			railName(1), node.Path("run/d.sock"), node.Path("state"), face.port, faceOf(1), face.mac, pod.Path(),
			face.ipv4, node.N, face.ipv6, node.N),
	}
	for range 2 {
		if outcome := call.Do(t); outcome.Err != nil {
			t.Errorf("the same ADD again: %v %s", outcome.Err, outcome.Stderr)
		}
	}
	call.Args = strings.ReplaceAll(call.Args, pod.name, "somebody-else")
	if outcome := call.Do(t); outcome.Err == nil {
		t.Error("ADD of another pod under the same key succeeded")
	}
	node.fabric.mustSettle(t)
}

func manyAtOnce(t *testing.T, fabric *fabric) {
	const many = 50
	node := fabric.nodes[0]
	var pods []*pod
	for range many {
		pods = append(pods, node.newPod(t, "red-1"))
	}
	each := func(act func(p *pod, rail int) error) {
		var group sync.WaitGroup
		for n, p := range pods {
			group.Go(func() {
				if err := act(p, n%rails); err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
			})
		}
		group.Wait()
		fabric.mustSettle(t)
	}
	each(func(p *pod, rail int) error { return p.attachLikeKubelet(t, rail) })
	each(func(p *pod, rail int) error { return p.detach(t, rail) })
}

// moveOnto moves a folder with its contents onto a small file system. The contents stay because the tenant directory
// would treat a daemon with an empty folder as a new one.
func moveOnto(t *testing.T, folder string) {
	t.Helper()
	testlab.Run(t, "cp", "-a", folder, folder+".kept")
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	testlab.Run(t, "cp", "-a", folder+".kept/.", folder)
}

func moveBack(t *testing.T, folder string) {
	t.Helper()
	testlab.Run(t, "cp", "-a", folder, folder+".now")
	err := errors.Join(syscall.Unmount(folder, syscall.MNT_DETACH), os.RemoveAll(folder), os.RemoveAll(folder+".kept"),
		os.Rename(folder+".now", folder))
	if err != nil {
		t.Error(err)
	}
}

// badDisks tests a full state folder and a damaged record in it.
func badDisks(t *testing.T, fabric *fabric) {
	node := fabric.nodes[1]
	state := node.Path("state")
	node.Kill(t)
	moveOnto(t, state)
	t.Cleanup(func() {
		node.Kill(t)
		moveBack(t, state)
		node.Restart(t)
	})
	node.Restart(t)
	pod, two, three := node.attachedPod(t, "red-1", 0), node.newPod(t, "red-1"), node.newPod(t, "red-1")
	if err := three.attach(t, 1); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(state, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	err := two.attach(t, 1)
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("ADD on a full disk: %v", err)
	}
	if err := three.detach(t, 1); err != nil {
		t.Errorf("DEL on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	fabric.mustSettle(t)

	node.Kill(t)
	files, _ := filepath.Glob(filepath.Join(state, "attachments", "*.json"))
	if len(files) != 1 {
		t.Fatalf("records %v", files)
	}
	content, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[0], content[:len(content)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	node.Restart(t)
	if kept, _ := filepath.Glob(filepath.Join(state, "attachments", "damaged", "*")); len(kept) != 1 {
		t.Errorf("damaged record must be kept, folder has %v", kept)
	}
	if err := pod.detach(t, 0); err != nil {
		t.Errorf("DEL of the damaged record's attachment: %v", err)
	}
	fabric.mustSettle(t)
}
