package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"railwright/node/internal/durable"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// heldFabric describes a running fabric to other programs.
type heldFabric struct {
	Railwrightd string     `json:"railwrightd"`
	Nodes       []heldNode `json:"nodes"`
	Leaves      []heldLeaf `json:"leaves"`
	Spine       heldLeaf   `json:"spine"`
	Pods        []heldPod  `json:"pods"`
}

type heldNode struct {
	Name        string     `json:"name"`
	Netns       string     `json:"netns"`
	Config      string     `json:"config"`
	Socket      string     `json:"socket"`
	State       string     `json:"state"`
	CNIResults  string     `json:"cni_results"`
	DaemonPID   int        `json:"daemon_pid"`
	OpenVSwitch heldOVS    `json:"openvswitch"`
	FRR         heldFRR    `json:"frr"`
	Rails       []heldRail `json:"rails"`
}

type heldOVS struct {
	Folder   string `json:"folder"`
	Database string `json:"database"`
}

type heldFRR struct {
	Version testlab.FRRVersion `json:"version"`
	Folder  string             `json:"folder"`
	Vtysh   []string           `json:"vtysh"`
	PIDs    map[string]int     `json:"pids"`
}

type heldRail struct {
	Name        string         `json:"name"`
	Bridge      string         `json:"bridge"`
	BridgeMAC   string         `json:"bridge_mac"`
	Uplink      string         `json:"uplink"`
	Address     netip.Addr     `json:"address"`
	LeafAddress netip.Addr     `json:"leaf_address"`
	LeafNetns   string         `json:"leaf_netns"`
	LeafPort    string         `json:"leaf_port"`
	Table       int            `json:"table"`
	Prefixes    []netip.Prefix `json:"prefixes"`
}

type heldLeaf struct {
	Rail  string  `json:"rail,omitempty"`
	Netns string  `json:"netns"`
	FRR   heldFRR `json:"frr"`
}

type heldPod struct {
	Name       string          `json:"name"`
	Namespace  string          `json:"namespace"`
	Tenant     string          `json:"tenant"`
	Node       string          `json:"node"`
	Netns      string          `json:"netns"`
	Container  string          `json:"container"`
	Interfaces []heldInterface `json:"interfaces"`
}

type heldInterface struct {
	Name string     `json:"name"`
	Rail string     `json:"rail"`
	Port string     `json:"port"`
	MAC  string     `json:"mac"`
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
}

// TestHold keeps a fabric running for other programs until its standard input is closed. It tests nothing itself.
//
//	RAILWRIGHT_HOLD=FILE          the file to write heldFabric to, as JSON, once everything is ready
//	RAILWRIGHT_HOLD_NODES=N       the number of nodes, by default 2
//	RAILWRIGHT_HOLD_FRR=8|10      the FRR release, by default 10
func TestHold(t *testing.T) {
	file := os.Getenv("RAILWRIGHT_HOLD")
	if file == "" {
		t.Skip("RAILWRIGHT_HOLD must name the file that describes the fabric to other programs")
	}
	of := shape{Release: railnode.NewFRR, nodes: 2}
	if os.Getenv("RAILWRIGHT_HOLD_FRR") == "8" {
		of.Release = railnode.OldFRR
	}
	if want := os.Getenv("RAILWRIGHT_HOLD_NODES"); want != "" {
		var err error
		of.nodes, err = strconv.Atoi(want)
		if err != nil || of.nodes < 2 || of.nodes > 8 {
			t.Fatalf("RAILWRIGHT_HOLD_NODES must be 2 to 8, got %q", want)
		}
	}
	fabric := newFabric(t, of)
	pods := []*pod{
		fabric.nodes[0].attachedPod(t, "red-1"), fabric.nodes[0].attachedPod(t, "red-1"), fabric.nodes[0].attachedPod(t, "alone"),
	}
	for _, node := range fabric.nodes[1:] {
		pods = append(pods, node.attachedPod(t, "red-1"))
	}
	fabric.mustSettle(t)
	content, err := json.MarshalIndent(fabric.describeFabric(t, pods), "", " ")
	if err == nil {
		err = durable.Write(file, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func (f *fabric) describeFabric(t *testing.T, pods []*pod) heldFabric {
	t.Helper()
	description := heldFabric{Railwrightd: railnode.Daemon(t), Spine: heldLeaf{Netns: f.spine.Name, FRR: describeFRR(t, f.spineFRR)}}
	for _, leaf := range f.leaves {
		description.Leaves = append(description.Leaves, heldLeaf{railName(leaf.Rail), leaf.Name, describeFRR(t, leaf.FRR)})
	}
	for _, node := range f.nodes {
		heldNode1 := heldNode{
			node.Name(), node.Host.Name, node.Config(), node.Socket(), node.State(), node.Path("cache/results"), node.Pid(),
			heldOVS{node.OVS.Folder, node.OVS.DatabaseSocket()}, describeFRR(t, node.FRR), nil,
		}
		for number, rail := range node.Rails {
			heldNode1.Rails = append(heldNode1.Rails, heldRail{
				rail.Name(), rail.Bridge(), rail.BridgeMAC(), rail.Uplink(), rail.Address(), rail.LeafAddress(),
				f.leaves[number].Name, rail.LeafPort(), rail.Table(), rail.Prefixes(),
			})
		}
		description.Nodes = append(description.Nodes, heldNode1)
	}
	for _, pod := range pods {
		record := heldPod{pod.name, pod.namespace, tenantOf(pod.rail[0]), pod.node.Name(), pod.Name, pod.id, nil}
		for rail, face := range pod.rail {
			record.Interfaces = append(record.Interfaces, heldInterface{
				faceOf(rail), railName(rail), face.port, fmt.Sprint(face.mac), face.ipv4, face.ipv6,
			})
		}
		description.Pods = append(description.Pods, record)
	}
	return description
}

func describeFRR(t *testing.T, frr *testlab.FRR) heldFRR {
	return heldFRR{frr.Version, frr.Folder, frr.Vtysh(t), frr.Pids()}
}
