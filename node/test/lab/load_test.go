package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// load is the load on one node.
type load struct {
	Held   int `json:"held"`
	Cycles int `json:"cycles"`
	Starts int `json:"starts"`
	// Forward is how long ADD may wait until the leaf forwards, or "" to not wait.
	Forward string `json:"forward_timeout,omitempty"`
}

// shortLoad is the load of CI. scripts/measured/node-network/measure-node passes another one as JSON.
var shortLoad = load{Held: 20, Cycles: 20, Starts: 3}

func wantedLoad(t *testing.T) load {
	t.Helper()
	setting := os.Getenv("RAILWRIGHT_MEASURE_LOAD")
	if setting == "" {
		return shortLoad
	}
	var plan load
	if err := json.Unmarshal([]byte(setting), &plan); err != nil || plan.Held < 1 || plan.Cycles < rails || plan.Starts < 1 {
		t.Fatalf("RAILWRIGHT_MEASURE_LOAD=%q: %v", setting, err)
	}
	return plan
}

// record is the result of a load run, with times in seconds.
type record struct {
	load
	FRR string `json:"frr"`
	// ADD and DEL are the times of the whole chain, by its plugins.
	ADD map[string][]float64 `json:"add_s"`
	DEL map[string][]float64 `json:"del_s"`
	// Plugins are the run times of the plugins' processes by type and verb.
	Plugins map[string][]float64 `json:"plugins_s"`
	// LeafAfterADD is the time from ADD's return until the leaf's kernel had both routes. It is negative if they came
	// first.
	LeafAfterADD []float64 `json:"leaf_after_add_s"`
	// Memory is the daemon's memory during the cycles.
	Memory []memory `json:"memory"`
	// Restart is the time from the daemon's start with all attachments held until it lists each as complete.
	Restart []float64 `json:"restart_s"`
	// PluginStart is the duration of VERSION, and PluginStartProcessor its processor time.
	PluginStart          []float64 `json:"plugin_start_s"`
	PluginStartProcessor []float64 `json:"plugin_start_processor_s"`
	// LoadAverage is the machine's load average before and after.
	LoadAverage []string `json:"load_average"`
}

type memory struct {
	Cycle         int   `json:"cycle"`
	ResidentBytes int64 `json:"resident_bytes"`
}

// TestLoad holds attachments on one node while it attaches and detaches others.
func TestLoad(t *testing.T) {
	t.Parallel()
	of, size := newFRR, wantedLoad(t)
	of.nodes, of.forward = 2, size.Forward
	fabric := newFabric(t, of)
	run := &loadRun{
		fabric: fabric, node: fabric.nodes[0], arrivals: watchRoutes(t, fabric),
		record: record{load: size, FRR: "10, kernel table", ADD: map[string][]float64{}, DEL: map[string][]float64{}, Plugins: map[string][]float64{}},
	}
	run.note(t)
	run.hold(t)
	run.cycles(t)
	run.restarts(t)
	run.starts(t)
	run.note(t)
	for name, took := range run.node.runtime.spent {
		run.record.Plugins[name] = seconds(took)
	}
	run.check(t)
	railnode.Keep(t, run.record)
	run.each(t, func(p *pod) error { return p.detach(t, 0) })
	fabric.mustSettle(t)
}

type loadRun struct {
	fabric   *fabric
	node     *node
	arrivals *arrivals
	record   record
	held     []*pod
}

func seconds(times []time.Duration) []float64 {
	found := make([]float64, 0, len(times))
	for _, t := range times {
		found = append(found, t.Seconds())
	}
	return found
}

func (l *loadRun) note(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	l.record.LoadAverage = append(l.record.LoadAverage, strings.TrimSpace(string(text)))
}

// hold creates the attachments to hold, each for a separate pod.
func (l *loadRun) hold(t *testing.T) {
	t.Helper()
	began := time.Now()
	for range l.record.Held {
		l.held = append(l.held, l.node.newPod(t, "red-1"))
	}
	l.each(t, func(p *pod) error { return p.attachLikeKubelet(t, 0) })
	t.Logf("%d are held after %.1f s", len(l.held), time.Since(began).Seconds())
	clear(l.node.runtime.spent)
}

// each calls act for each held pod, several concurrently: it is not part of the timed work.
func (l *loadRun) each(t *testing.T, act func(*pod) error) {
	t.Helper()
	for batch := range slices.Chunk(l.held, 8) {
		var tasks []func()
		for _, p := range batch {
			tasks = append(tasks, func() {
				if err := act(p); err != nil {
					t.Error(err)
				}
			})
		}
		testlab.AtOnce(t, tasks...)
	}
}

func (l *loadRun) cycles(t *testing.T) {
	t.Helper()
	chains := [rails]string{"ovs + tuning + ovs-provider + frr-provider", "ovs + railwright-cni"}
	pod := l.node.newPod(t, "red-2")
	for cycle := range l.record.Cycles {
		rail := cycle % rails
		pod.id = fmt.Sprintf("cycle%d", cycle)
		began := time.Now()
		face, err := pod.add(t, rail)
		returned := time.Now()
		if err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		l.record.ADD[chains[rail]] = append(l.record.ADD[chains[rail]], returned.Sub(began).Seconds())
		l.record.LeafAfterADD = append(l.record.LeafAfterADD, l.arrivals.last(t, began, face.addresses()...).Sub(returned).Seconds())
		began = time.Now()
		if err := pod.del(t, rail); err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		l.record.DEL[chains[rail]] = append(l.record.DEL[chains[rail]], time.Since(began).Seconds())
		if cycle%20 == 0 || cycle == l.record.Cycles-1 {
			l.record.Memory = append(l.record.Memory, memory{cycle, l.node.Resident(t)})
		}
		if cycle%100 == 99 {
			t.Logf("cycle %d: %d MiB", cycle, l.node.Resident(t)>>20)
		}
	}
	l.fabric.mustSettle(t)
}

// restarts measures restarts of the daemon with all attachments held, until it lists all flows as installed and all
// routes as advertised.
func (l *loadRun) restarts(t *testing.T) {
	t.Helper()
	for range l.record.Starts {
		l.node.Kill(t)
		began := time.Now()
		l.node.Start(t, "")
		testlab.Eventually(t, "all held attachments are complete", func() bool { return len(l.node.listProblems(t, len(l.held))) == 0 })
		l.record.Restart = append(l.record.Restart, time.Since(began).Seconds())
	}
	l.fabric.mustSettle(t)
}

func (l *loadRun) starts(t *testing.T) {
	t.Helper()
	call := cnitest.Call{
		Program: filepath.Join(railnode.Plugins(t), "railwright-cni"), Command: "VERSION", Config: `{"cniVersion":"1.0.0","name":"rail0"}`,
	}
	for range 5 * l.record.Starts {
		outcome := call.Do(t)
		l.record.PluginStart = append(l.record.PluginStart, outcome.Wall.Seconds())
		l.record.PluginStartProcessor = append(l.record.PluginStartProcessor, outcome.Processor.Seconds())
	}
}

// check checks what must hold on any machine. It judges no times; they are only recorded.
func (l *loadRun) check(t *testing.T) {
	t.Helper()
	show := func(name string, times []float64) {
		sorted := slices.Sorted(slices.Values(times))
		t.Logf("%-50s %4d times: p50 %6.1f ms, p99 %6.1f ms", name, len(sorted), 1e3*sorted[len(sorted)/2], 1e3*sorted[len(sorted)*99/100])
	}
	for chain, times := range l.record.ADD {
		show("ADD of "+chain, times)
	}
	for name, times := range l.record.Plugins {
		show(name, times)
	}
	show("leaf has the routes after ADD's return", l.record.LeafAfterADD)
	show(fmt.Sprintf("restart with %d held", len(l.held)), l.record.Restart)
	show("start of the plugin", l.record.PluginStart)
	first, last := l.record.Memory[len(l.record.Memory)/4].ResidentBytes, l.record.Memory[len(l.record.Memory)-1].ResidentBytes
	t.Logf("memory after a quarter of the cycles %.1f MiB, at the end %.1f MiB", float64(first)/(1<<20), float64(last)/(1<<20))
	if last > first*5/4+8<<20 {
		t.Errorf("daemon's memory grew from %d to %d bytes", first, last)
	}
}

// arrivals records when routes arrive in the leaves' kernels, by the clock of this process.
type arrivals struct {
	mutex sync.Mutex
	at    map[netip.Addr]time.Time
	// left holds the routes that left a leaf, with the time.
	left map[netip.Addr]time.Time
	// longest is the longest time that a route was away before it returned.
	longest time.Duration
}

func watchRoutes(t *testing.T, fabric *fabric) *arrivals {
	t.Helper()
	made := &arrivals{at: map[netip.Addr]time.Time{}, left: map[netip.Addr]time.Time{}}
	for _, leaf := range fabric.leaves {
		there, err := netns.GetFromPath(leaf.Path())
		if err != nil {
			t.Fatal(err)
		}
		updates, end := make(chan netlink.RouteUpdate, 4096), make(chan struct{})
		if err := netlink.RouteSubscribeAt(there, updates, end); err != nil {
			t.Fatal(err)
		}
		_ = there.Close()
		t.Cleanup(func() { close(end) })
		go made.follow(updates)
	}
	return made
}

func (a *arrivals) follow(updates <-chan netlink.RouteUpdate) {
	for update := range updates {
		if update.Dst == nil {
			continue
		}
		if address, ok := single(update.Dst); ok {
			a.note(address, update.Type)
		}
	}
}

func (a *arrivals) note(address netip.Addr, kind uint16) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	switch now := time.Now(); kind {
	case unix.RTM_NEWROUTE:
		a.at[address] = now
		if left, away := a.left[address]; away {
			a.longest = max(a.longest, now.Sub(left))
			delete(a.left, address)
		}
	case unix.RTM_DELROUTE:
		a.left[address] = now
	}
}

// longestAway returns the longest absence of a route since its last call, or 0 if none was absent.
func (a *arrivals) longestAway() time.Duration {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	longest := a.longest
	a.longest = 0
	return longest
}

func single(network *net.IPNet) (netip.Addr, bool) {
	ones, bits := network.Mask.Size()
	address, ok := netip.AddrFromSlice(network.IP)
	return address.Unmap(), ok && ones == bits
}

// last returns the last arrival of the addresses after since.
func (a *arrivals) last(t *testing.T, since time.Time, addresses ...netip.Addr) time.Time {
	t.Helper()
	var latest time.Time
	testlab.Eventually(t, "the leaf has the routes", func() bool {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		latest = time.Time{}
		for _, address := range addresses {
			at := a.at[address]
			if at.Before(since) {
				return false
			}
			if at.After(latest) {
				latest = at
			}
		}
		return true
	})
	return latest
}
