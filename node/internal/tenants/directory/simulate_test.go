package directory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/table"
)

// addressOf returns an address of the few that pods contend for.
func addressOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + i)}) }

const (
	contended = 4
	machines  = 6
)

// work starts and ends pods on all machines.
func (w *world) work() {
	w.mutex.Lock()
	all := slices.Clone(w.machines)
	w.mutex.Unlock()
	for _, m := range all {
		if w.draw(3) == 0 {
			m.add(string(rune('a'+w.draw(3))), addressOf(w.draw(contended)))
		}
		which := addressOf(w.draw(2 * contended))
		m.del(func(p *pod) bool { return p.address == which })
	}
}

// act lets something go wrong, or everything work again.
func (w *world) act(step int) {
	w.mutex.Lock()
	m := w.machines[w.random.IntN(len(w.machines))]
	chance, up, on, cut := w.random.IntN(100), m.daemon != nil, m.on, m.cut
	if step%4 == 0 {
		w.lagging, _ = table.New("", w.table.Backup())
	}
	w.mutex.Unlock()
	switch {
	case chance < 50:
		// Everything works for a while.
		w.mutex.Lock()
		w.away = false
		all := slices.Clone(w.machines)
		for _, other := range all {
			other.cut = false
		}
		w.mutex.Unlock()
		for _, other := range all {
			w.mutex.Lock()
			idle := other.on && other.daemon == nil
			w.mutex.Unlock()
			if idle {
				other.start()
			}
		}
	case chance < 67:
		switch {
		case up:
			m.end()
		case on:
			m.start()
		}
	case chance < 72:
		w.mutex.Lock()
		m.cut = !cut
		w.mutex.Unlock()
	case chance < 74:
		w.mutex.Lock()
		w.away = !w.away
		w.mutex.Unlock()
	case chance < 78:
		if !up {
			m.reboot()
		}
	case chance < 82:
		w.mutex.Lock()
		if w.policy.Peerings == nil && w.spaces["a"]+w.spaces["b"] == 0 {
			w.policy = tenants.Policy{Peerings: []tenants.Peering{{A: "ns:a", B: "ns:b", Made: time.Now()}}}
		} else {
			w.policy = tenants.Policy{}
		}
		close(w.heard)
		w.heard = make(chan struct{})
		w.mutex.Unlock()
	case chance < 84:
		w.deleteMembers()
	case chance < 86:
		// The namespace is made anew. Nobody peers the new one.
		w.mutex.Lock()
		name := string(rune('a' + w.random.IntN(3)))
		w.spaces[name]++
		w.made[name] = time.Now().Add(time.Nanosecond)
		w.mutex.Unlock()
	case chance < 89:
		w.mutex.Lock()
		w.backups = append(w.backups, w.table.Backup())
		w.mutex.Unlock()
	case chance < 92:
		if w.draw(2) == 0 {
			m.end() // it is silent for a while
		}
		w.restore()
	case chance < 94:
		// All daemons are upgraded while the store is away.
		w.mutex.Lock()
		w.away = true
		all := slices.Clone(w.machines)
		w.mutex.Unlock()
		for _, other := range all {
			w.mutex.Lock()
			runs := other.on && other.daemon != nil
			w.mutex.Unlock()
			if runs {
				other.end()
				other.start()
			}
		}
	case chance < 97:
		w.replace(m)
	default:
		w.declareOff()
	}
}

// deleteMembers deletes a Members object by hand.
func (w *world) deleteMembers() {
	ctx := context.Background()
	list, _ := w.table.List(ctx, tenants.KindMembers, "ns:"+string(rune('a'+w.draw(3)))+"@0")
	for _, object := range list.Objects {
		_ = w.table.Delete(ctx, object)
	}
}

// restore restores the store from a backup. Without the procedure that is seen only by nodes that have gone by something
// later, so it happens only if all have; the administrator comes some seconds later.
func (w *world) restore() {
	w.mutex.Lock()
	if len(w.backups) == 0 || w.away {
		w.mutex.Unlock()
		return
	}
	backup := w.backups[w.random.IntN(len(w.backups))]
	w.backups = w.backups[:1]
	late := w.random.IntN(2) == 0
	var stored struct {
		Version uint64           `json:"version"`
		Objects []tenants.Object `json:"objects"`
	}
	_ = json.Unmarshal(backup, &stored)
	var nodes []string
	for _, m := range w.machines {
		if m.on {
			nodes = append(nodes, m.name)
		}
		if m.on && m.daemon != nil {
			m.daemon.mutex.Lock()
			late = late && m.daemon.gone > stored.Version+60
			m.daemon.mutex.Unlock()
		}
		late = late && m.on && m.daemon != nil && !m.cut
	}
	if !late {
		// Other writes may have brought the version past what nodes remember.
		var now struct {
			Version uint64 `json:"version"`
		}
		_ = json.Unmarshal(w.table.Backup(), &now)
		stored.Version = now.Version + 10
		backup, _ = json.Marshal(stored)
	}
	restored, _ := table.New("", backup)
	if !late && w.rule != procedure {
		_, _ = RaiseEpoch(context.Background(), restored, nodes)
	}
	w.note("restored to %d, late %v, nodes %v", stored.Version, late, nodes)
	w.table = restored
	close(w.restored)
	w.restored = make(chan struct{})
	w.mutex.Unlock()
	if late {
		time.Sleep(5 * time.Second)
		if w.rule != procedure {
			_, _ = RaiseEpoch(context.Background(), restored, nodes)
		}
	}
}

// replace deletes the Node of a machine that runs on, and brings another machine of the same name.
func (w *world) replace(m *machine) {
	w.mutex.Lock()
	many := len(w.machines) >= machines || !m.on
	w.mutex.Unlock()
	if many {
		return
	}
	if w.rule == noTimeOut {
		w.free(func(spec tenants.NodeSpec) bool { return spec.NodeUID == m.uid })
	}
	w.join(m.node)
}

// free declares machines off and frees them.
func (w *world) free(which func(tenants.NodeSpec) bool) {
	ctx := context.Background()
	list, _ := w.table.List(ctx, tenants.KindNode, "")
	for _, object := range list.Objects {
		if spec, err := tenants.Decode[tenants.NodeSpec](object); err == nil && which(spec) {
			_ = w.table.SetOff(ctx, object.Name, spec.NodeUID)
		}
	}
	_, _ = Sweep(ctx, w.table)
}

// declareOff switches the newest machine off and taints its Node as out of service. The Node has the name of others that may run.
func (w *world) declareOff() {
	w.mutex.Lock()
	m := w.machines[len(w.machines)-1]
	w.mutex.Unlock()
	w.note("off %s %s", m.id, m.name)
	m.powerOff()
	time.Sleep(tenants.Drain)
	w.free(func(spec tenants.NodeSpec) bool {
		return spec.NodeUID == m.uid || w.rule == nodeUID && spec.Node == m.node
	})
}

// simulate plays runs with a rule left out until one goes wrong, and returns how many there were.
func simulate(t *testing.T, runs int, rule rule) (played, granted int, fault string) {
	var next, pods atomic.Int64
	var found atomic.Pointer[string]
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for found.Load() == nil {
				seed := next.Add(1)
				if seed > int64(runs) {
					return
				}
				fault, granted := play(t, uint64(seed), rule)
				pods.Add(int64(granted))
				if fault != "" {
					fault = fmt.Sprintf("run %d: %s", seed, fault)
					found.Store(&fault)
				}
			}
		})
	}
	group.Wait()
	if text := found.Load(); text != nil {
		fault = *text
	}
	return int(min(next.Load(), int64(runs))), int(pods.Load()), fault
}

// runs is the number of runs with all rules.
func runs() int {
	if os.Getenv("RAILWRIGHT_TEST_LONG") != "" {
		return 10_000
	}
	return 100
}

func TestNoRunLetsAStrangerInOrGivesAnAddressTwice(t *testing.T) {
	played, granted, fault := simulate(t, runs(), none)
	if fault != "" {
		t.Fatal(fault)
	}
	t.Logf("%d runs, %d pods", played, granted)
	if granted < 3*played {
		t.Errorf("only %d pods were started in %d runs", granted, played)
	}
}

// TestEveryRuleIsNeeded leaves out one rule after the other: a run must then go wrong.
func TestEveryRuleIsNeeded(t *testing.T) {
	if os.Getenv("RAILWRIGHT_TEST_LONG") == "" {
		t.Skip("takes many minutes; set RAILWRIGHT_TEST_LONG=1")
	}
	rules := []rule{
		claims, claimFirst, readAtAdd, readPeers, neverBackward, syncRead, membersFirst, drain, epochGate, epochMembers,
		epochNodes, seeRestore, twoRounds, flowsFirst, linearizable, noTimeOut, nodeUID, namespaceUID, procedure,
	}
	if only := os.Getenv("RAILWRIGHT_TEST_RULE"); only != "" {
		rules = slices.DeleteFunc(rules, func(r rule) bool { return string(r) != only })
	}
	most := 3000
	if text := os.Getenv("RAILWRIGHT_TEST_RUNS"); text != "" {
		most, _ = strconv.Atoi(text)
	}
	for _, rule := range rules {
		t.Run(string(rule), func(t *testing.T) {
			played, _, fault := simulate(t, most, rule)
			if fault == "" {
				t.Errorf("%d runs without this rule let no stranger in", played)
			}
			t.Log(fault)
		})
	}
}
