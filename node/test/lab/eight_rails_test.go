package lab

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const manyRails = 8

// manyRailsRecord is the result of TestEightRails, with times in seconds.
type manyRailsRecord struct {
	load
	// ADD and DEL are the times of all chains of a pod, one after the other, as a runtime calls them.
	ADD []float64 `json:"add_s"`
	DEL []float64 `json:"del_s"`
	// Plugins are the run times of the plugins' processes by type and verb.
	Plugins     map[string][]float64 `json:"plugins_s"`
	LoadAverage []string             `json:"load_average"`
}

// TestEightRails attaches a pod to eight rails, as Multus does, and detaches it, while other pods stay.
func TestEightRails(t *testing.T) {
	t.Parallel()
	size := wantedLoad(t)
	if size == shortLoad {
		size.Held, size.Cycles = 1, 2
	}
	var leaves []*railnode.Leaf
	for number := range manyRails {
		leaves = append(leaves, railnode.NewLeaf(t, number))
	}
	nd := &node{Node: railnode.New(t, 1, manyRails, leaves...)}
	if err := os.MkdirAll(nd.Path("lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	nd.StartSwitch(t)
	nd.StartFRR(t, railnode.NewFRR)
	for _, leaf := range leaves {
		leaf.FRR = testlab.StartFRR(t, leaf.Namespace, railnode.NewFRR.Version, leaf.Text(nd.Node))
	}
	nd.Configure(t, "{kind: local}")
	nd.runtime = newRuntime(t, nd)
	nd.Start(t, "")
	nd.Ready(t)
	var lists []*libcni.NetworkConfigList
	for rail := range manyRails {
		list, err := libcni.ConfListFromBytes(nd.conflist(t, rail, ourPlugins(1)...))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, list)
	}
	run := &manyRailsRun{lists: lists, record: manyRailsRecord{load: size, Plugins: map[string][]float64{}}}
	notes := &loadRun{}
	var held []*pod
	for range size.Held {
		held = append(held, nd.newPod(t, "red-1"))
	}
	for batch := range slices.Chunk(held, 8) {
		var tasks []func()
		for _, pod := range batch {
			tasks = append(tasks, func() { run.attach(t, pod) })
		}
		testlab.AtOnce(t, tasks...)
	}
	notes.note(t)
	clear(nd.runtime.spent)
	for range size.Cycles {
		pod := nd.newPod(t, "red-1")
		run.record.ADD = append(run.record.ADD, run.attach(t, pod).Seconds())
		run.record.DEL = append(run.record.DEL, run.detach(t, pod).Seconds())
	}
	notes.note(t)
	run.record.LoadAverage = notes.record.LoadAverage
	for name, took := range nd.runtime.spent {
		run.record.Plugins[name] = seconds(took)
	}
	railnode.Keep(t, run.record)
	for _, pod := range held {
		run.detach(t, pod)
	}
}

type manyRailsRun struct {
	lists  []*libcni.NetworkConfigList
	record manyRailsRecord
}

func (m *manyRailsRun) attach(t *testing.T, pod *pod) time.Duration {
	t.Helper()
	began := time.Now()
	for rail, list := range m.lists {
		ctx, cancel := boundedContext(t)
		_, err := pod.node.runtime.cni.AddNetworkList(ctx, list, pod.conf(rail))
		cancel()
		if err != nil {
			t.Errorf("ADD on rail %d: %v", rail, err)
		}
	}
	return time.Since(began)
}

func (m *manyRailsRun) detach(t *testing.T, pod *pod) time.Duration {
	t.Helper()
	began := time.Now()
	for rail, list := range m.lists {
		if err := pod.node.runtime.delete(t, list, pod.conf(rail)); err != nil {
			t.Errorf("DEL on rail %d: %v", rail, err)
		}
	}
	return time.Since(began)
}
