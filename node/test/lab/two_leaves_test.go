package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// twoLeaves is a rail with two leaves, which a spine connects, and two nodes with an uplink and a session to each leaf.
type twoLeaves struct {
	leaves [2]*railnode.Leaf
	nodes  []*node
	pods   [2]*attached
}

// portOf returns the leaf's port to a node.
func (w *twoLeaves) portOf(leaf, node int) railnode.Rail {
	return railnode.Rail{Node: node + 1, Number: leaf}
}

func newTwoLeaves(t *testing.T) *twoLeaves {
	t.Helper()
	railnode.Daemon(t)
	made := &twoLeaves{}
	folder, err := os.MkdirTemp("", "rwt-f-")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "tenants.json"), []byte(tenantsFile), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	fabric := &fabric{shape: newFRR, spine: testlab.NewNamespace(t, "spine"), live: liveSet{all: map[string]*attached{}}}
	railnode.Route(t, fabric.spine)
	for i := range made.leaves {
		made.leaves[i] = railnode.NewLeaf(t, i)
		fabric.leaves[i] = made.leaves[i]
		fabric.cableToSpine(t, i)
	}
	for n := range 2 {
		nd := &node{Node: railnode.New(t, n+1, 1, made.leaves[0]), fabric: fabric}
		nd.ConnectSecond(t, made.leaves[1])
		if err := os.MkdirAll(nd.Path("lib"), 0o755); err != nil {
			t.Fatal(err)
		}
		made.nodes = append(made.nodes, nd)
	}
	for i, leaf := range made.leaves {
		text := frrconfig.Leaf{
			ASN: railnode.FirstLeafASN + uint32(i), RouterID: netip.AddrFrom4([4]byte{10, 255, 1, byte(i + 1)}), BFD: true,
			Rail: railName(0), Prefixes: railPrefixes(0), MaxPrefixes: 256,
			Ports: []string{made.portOf(i, 0).Address().String(), made.portOf(i, 1).Address().String()},
		}.Text() + fabricSessions(railnode.FirstLeafASN+i, fmt.Sprintf("198.51.100.%d", 2*i))
		leaf.FRR = testlab.StartFRR(t, leaf.Namespace, newFRR.Version, text, "bfdd")
	}
	testlab.StartFRR(t, fabric.spine, newFRR.Version, spineText())
	for _, nd := range made.nodes {
		nd.StartSwitch(t)
		nd.StartFRR(t, newFRR.Release)
		nd.Configure(t, "{kind: folder, folder: "+folder+"}")
		nd.runtime = newRuntime(t, nd)
		nd.Start(t, "")
	}
	for i, nd := range made.nodes {
		nd.Ready(t)
		made.pods[i] = nd.attachedPod(t, "red-1", 0).rail[0]
	}
	return made
}

// lose breaks something and returns what mends it.
type lose struct {
	name string
	lose func(t *testing.T, world *twoLeaves) (mend func())
}

func cable(leaf, node int) lose {
	return lose{fmt.Sprintf("cable of node %d to leaf %d", node+1, leaf), func(t *testing.T, world *twoLeaves) func() {
		port := world.portOf(leaf, node)
		world.leaves[leaf].IP(t, "link", "set", port.LeafPort(), "down")
		return func() {
			world.leaves[leaf].IP(t, "link", "set", port.LeafPort(), "up")
			world.leaves[leaf].IP(t, "addr", "replace", port.LeafAddress6().String()+"/127", "dev", port.LeafPort(), "nodad")
		}
	}}
}

func session(leaf, node int) lose {
	return lose{fmt.Sprintf("session of node %d with leaf %d", node+1, leaf), func(t *testing.T, world *twoLeaves) func() {
		frr, neighbor := world.leaves[leaf].FRR, world.portOf(leaf, node).Address()
		router := fmt.Sprintf("router bgp %d", railnode.FirstLeafASN+leaf)
		frr.Show(t, "configure terminal", router, fmt.Sprintf("neighbor %v shutdown", neighbor))
		return func() { frr.Show(t, "configure terminal", router, fmt.Sprintf("no neighbor %v shutdown", neighbor)) }
	}}
}

func wholeLeaf(leaf int) lose {
	return lose{fmt.Sprintf("leaf %d", leaf), func(t *testing.T, world *twoLeaves) func() {
		mends := []func(){}
		for node := range 2 {
			mends = append(mends, cable(leaf, node).lose(t, world))
		}
		world.leaves[leaf].IP(t, "link", "set", "spine", "down")
		return func() {
			for _, mend := range mends {
				mend()
			}
			world.leaves[leaf].IP(t, "link", "set", "spine", "up")
			world.leaves[leaf].IP(t, "addr", "replace", fmt.Sprintf("2001:db8:f:%d::1/127", leaf), "dev", "spine", "nodad")
		}
	}}
}

// silent makes a leaf drop everything, while its links keep their carriers: BFD alone notices.
func silent(leaf int) lose {
	return lose{fmt.Sprintf("a sound of leaf %d", leaf), func(t *testing.T, world *twoLeaves) func() {
		command := world.leaves[leaf].Command("nft", "-f", "-")
		command.Stdin = strings.NewReader(`
add table inet dead
add chain inet dead in { type filter hook prerouting priority -400; policy drop; }
add chain inet dead out { type filter hook output priority -400; policy drop; }
`)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, output)
		}
		return func() { world.leaves[leaf].Run(t, "nft", "delete", "table", "inet", "dead") }
	}}
}

// TestARailWithTwoLeavesOutlivesOne loses leaves, cables and sessions, one and two at a time. No pod loses its address,
// and their packets reach each other again by what is left.
func TestARailWithTwoLeavesOutlivesOne(t *testing.T) {
	t.Parallel()
	world := newTwoLeaves(t)
	for _, fault := range [][]lose{
		{cable(0, 0)}, {cable(1, 1)}, {session(0, 0)}, {session(1, 0)}, {wholeLeaf(0)}, {wholeLeaf(1)},
		{cable(0, 0), cable(1, 1)}, {cable(0, 0), session(0, 1)}, {session(0, 0), session(1, 1)}, {wholeLeaf(0), session(0, 1)},
		{silent(0)}, {silent(1)},
	} {
		var names []string
		for _, one := range fault {
			names = append(names, one.name)
		}
		name := strings.Join(names, ", ")
		world.settled(t)
		stream := world.stream(t)
		var mends []func()
		for _, one := range fault {
			mends = append(mends, one.lose(t, world))
		}
		world.reach(t, "without "+name)
		t.Logf("figure: without %s: %v", name, stream())
		for i, pod := range world.pods {
			address, err := pod.pod.Try("ip", "-br", "address", "show", "dev", faceOf(0))
			if err != nil || !strings.Contains(address, pod.ipv4.String()) {
				t.Errorf("%s: pod %d has lost its address: %s", name, i, address)
			}
		}
		for _, mend := range mends {
			mend()
		}
		world.reach(t, "again with "+name)
	}
}

// settled waits until both leaves have the routes of both pods from both nodes, and each node has both sessions.
func (w *twoLeaves) settled(t *testing.T) {
	t.Helper()
	for _, nd := range w.nodes {
		nd.Ready(t)
	}
	for _, leaf := range w.leaves {
		testlab.Eventually(t, leaf.Name+" has all routes from its own nodes", func() bool {
			for i, pod := range w.pods {
				route, _ := leaf.Try("ip", "route", "show", pod.ipv4.String())
				if !strings.Contains(route, fmt.Sprintf("swp%d", i+1)) {
					return false
				}
			}
			return true
		})
	}
	w.reach(t, "before")
}

// reach waits until the pods reach each other in both families.
func (w *twoLeaves) reach(t *testing.T, when string) {
	t.Helper()
	for _, family := range []int{4, 6} {
		testlab.Eventually(t, fmt.Sprintf("the pods reach each other by IPv%d %s", family, when), func() bool {
			for i, pod := range w.pods {
				if _, err := pod.pod.Try("ping", "-c", "3", "-i", "0.02", "-W", "1", w.pods[1-i].address(family).String()); err != nil {
					return false
				}
			}
			return true
		})
	}
}

var sequenceWord = regexp.MustCompile(`icmp_seq=(\d+)`)

const betweenPings = 20 * time.Millisecond

// stream sends requests from one pod to the other until the returned function is called, which counts those of the
// longest gap without an answer, as a time.
func (w *twoLeaves) stream(t *testing.T) func() time.Duration {
	t.Helper()
	ping := w.pods[0].pod.Command("ping", "-n", "-i", fmt.Sprint(betweenPings.Seconds()), w.pods[1].ipv4.String())
	var output strings.Builder
	ping.Stdout = &output
	if err := testlab.Start(ping); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	return func() time.Duration {
		time.Sleep(200 * time.Millisecond)
		_ = ping.Process.Signal(os.Interrupt)
		_ = ping.Wait()
		last, longest := 0, 0
		for _, match := range sequenceWord.FindAllStringSubmatch(output.String(), -1) {
			number, _ := strconv.Atoi(match[1])
			longest = max(longest, number-last-1)
			last = number
		}
		return time.Duration(longest) * betweenPings
	}
}
