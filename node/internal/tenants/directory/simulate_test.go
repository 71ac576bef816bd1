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
	steps     = 60
	crossings = 3
)

// namespace returns one of the three namespaces.
func namespace(i int) string { return string(rune('a' + i%3)) }

// cross moves an address each from two machines to two others. Each then belongs to the tenant that the other one belonged to
// before, or to its peer: of two nodes that are both late each takes the other's address for a friend's.
func (w *world) cross(round int) {
	if w.draw(4) == 0 {
		w.renew()
	}
	w.mutex.Lock()
	if w.random.IntN(4) == 0 {
		w.setPeering(len(w.policy.Peerings) == 0)
	}
	order := w.random.Perm(len(w.machines))
	from, to := [2]*machine{w.machines[order[0]], w.machines[order[1]]}, [2]*machine{w.machines[order[2]], w.machines[order[3]]}
	w.mutex.Unlock()
	first := w.draw(3)
	before := [2]string{namespace(first), namespace(first + 1 + w.draw(2))}
	after := [2]string{before[1], before[0]}
	if w.draw(2) == 0 {
		for after[0] == before[0] || after[0] == before[1] {
			after[0] = namespace(w.draw(3))
		}
	}
	var moved [2]netip.Addr
	for i := range moved {
		moved[i] = addressOf(10*round + i)
		from[i].add(before[i], moved[i])
	}
	time.Sleep(time.Second)
	w.rest(4 * time.Second)
	for i := range to {
		// These keep what they read on their disks.
		if w.draw(4) > 0 {
			to[i].add(before[1-i], addressOf(10*round+2+i))
		}
	}
	w.rest(2 * time.Second)
	w.mutex.Lock()
	w.backups = append(w.backups[:1], w.table.Backup())
	for range 100 {
		// Others write too, so that versions grow.
		made, _ := w.table.Create(context.Background(), tenants.Object{Kind: "Other"})
		_ = w.table.Delete(context.Background(), made)
	}
	late := time.Now().Add(3*time.Second + time.Duration(w.random.Int64N(int64(15*time.Second))))
	for _, m := range to {
		if m.lateUntil = late; w.random.IntN(2) == 0 {
			m.lateUntil = time.Now().Add(time.Duration(w.random.Int64N(int64(25 * time.Second))))
		}
		if w.random.IntN(2) == 0 {
			m.slowUntil = time.Now().Add(5 * time.Second)
		}
	}
	w.mutex.Unlock()
	for i := range from {
		// An event that has the address of this machine is on its way for long.
		if w.draw(4) > 0 {
			from[i].add(before[i], addressOf(10*round+4+i))
		}
	}
	w.rest(time.Second)
	for i := range 2 {
		if i = 1 - i; i == 0 {
			w.rest([]time.Duration{200 * time.Millisecond, 5 * time.Second}[w.draw(2)])
		}
		from[i].del(func(p *pod) bool { return p.address == moved[i] })
	}
	for tries, served := 0, false; tries < 40 && !served; tries++ {
		served = true
		for i, m := range to {
			served = served && m.serves(moved[i])
			m.add(after[i], moved[i])
		}
		w.rest(300 * time.Millisecond)
	}
	w.count("two addresses change places between tenants")
	switch w.draw(6) {
	case 0:
		w.upgrade()
	case 1:
		from[0].end() // it is silent for a while
		from[1].end()
		w.restore(1, false)
	case 2:
		w.restore(1, true)
	}
	w.rest(15 * time.Second)
	w.mendAll()
	for _, m := range w.machines {
		m.del(func(p *pod) bool { return p.address.Less(addressOf(100)) })
	}
	time.Sleep(3 * time.Second)
}

// serves reports whether a pod of the machine can send from an address.
func (m *machine) serves(address netip.Addr) bool {
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	p := m.tables.pods[address]
	return p != nil && !p.leaving
}

// chaos lets pods contend for few addresses while all kinds of things go wrong.
func (w *world) chaos(step int) {
	w.rest(600 * time.Millisecond)
	w.work()
	if step%2 == 0 {
		w.act(step)
	}
}

// work starts and ends pods on all machines.
func (w *world) work() {
	w.mutex.Lock()
	all := slices.Clone(w.machines)
	w.mutex.Unlock()
	for _, m := range all {
		if w.draw(3) == 0 {
			m.add(namespace(w.draw(3)), addressOf(w.draw(contended)))
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
	if w.rule == linearizable && step%4 == 0 {
		w.lagging, _ = table.New("", w.table.Backup())
	}
	w.mutex.Unlock()
	switch {
	case chance < 50:
		w.mendAll()
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
		w.happened["a machine loses the store"]++
		w.mutex.Unlock()
	case chance < 74:
		w.mutex.Lock()
		w.away = !w.away
		w.happened["the store is away"]++
		w.mutex.Unlock()
	case chance < 76:
		m.reboot()
	case chance < 80:
		w.mutex.Lock()
		w.setPeering(len(w.policy.Peerings) == 0)
		w.mutex.Unlock()
	case chance < 82:
		w.mutex.Lock()
		w.jump()
		w.mutex.Unlock()
	case chance < 84:
		w.deleteMembers()
	case chance < 86:
		w.renew()
	case chance < 87:
		w.mutex.Lock()
		w.backups = append(w.backups, w.table.Backup())
		w.mutex.Unlock()
	case chance < 91:
		switch w.draw(3) {
		case 0:
			m.end() // it is silent for a while
		case 1:
			w.mendAll()
			time.Sleep(2 * time.Second)
		}
		w.mutex.Lock()
		which := w.random.IntN(len(w.backups))
		w.mutex.Unlock()
		w.restore(which, w.draw(2) == 0)
	case chance < 94:
		w.upgrade()
	case chance < 97:
		w.replace(m)
	default:
		w.declareOff()
	}
}

// renew makes a namespace anew. Nobody peers the new one, but the store's clock may say that it is older than a peering.
func (w *world) renew() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.random.IntN(2) == 0 {
		w.jump()
	}
	name := namespace(w.random.IntN(3))
	w.spaces[name]++
	w.made[name] = w.clock().Add(time.Nanosecond)
	w.happened["a namespace is made anew"]++
	before := len(w.friends)
	if w.befriend(); len(w.friends) > before {
		w.happened["a peering seems younger than the namespace that came after it"]++
	}
}

// jump sets the store's clock to another time. The caller holds the mutex.
func (w *world) jump() {
	w.skew = time.Duration(w.random.Int64N(int64(20*time.Minute))) - 10*time.Minute
	w.happened["the store's clock jumps"]++
}

// mendAll makes everything work for a while.
func (w *world) mendAll() {
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
}

// upgrade starts all daemons anew while the store is away.
func (w *world) upgrade() {
	w.mutex.Lock()
	w.away = true
	all := slices.Clone(w.machines)
	w.happened["all daemons are upgraded while the store is away"]++
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
}

// deleteMembers deletes a Members object by hand.
func (w *world) deleteMembers() {
	ctx := context.Background()
	list, _ := w.table.List(ctx, tenants.KindMembers, "ns:"+namespace(w.draw(3))+"@0")
	for _, object := range list.Objects {
		w.count("a Members object is deleted by hand")
		_ = w.table.Delete(ctx, object)
	}
}

// restore restores the store from a backup. Without the procedure that is seen only by nodes that have gone by something
// later and by its epoch, so it happens only if all have; the administrator comes some seconds later.
func (w *world) restore(which int, late bool) {
	w.mutex.Lock()
	if w.away {
		w.mutex.Unlock()
		return
	}
	backup := w.backups[which]
	w.backups = w.backups[:1]
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
			late = late && m.daemon.gone > stored.Version+60 && m.daemon.state.entered[epochOf(stored.Objects)]
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
	if late {
		w.happened["the store is restored, and the epoch raised seconds later"]++
	} else {
		w.happened["the store is restored, and the epoch raised first"]++
	}
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

// epochOf returns the epoch in a backup.
func epochOf(objects []tenants.Object) string {
	for _, object := range objects {
		if spec, err := tenants.Decode[tenants.EpochSpec](object); object.Kind == tenants.KindEpoch && err == nil {
			return spec.ID
		}
	}
	return ""
}

// replace deletes the Node of a machine that runs on, and brings another machine of the same name.
func (w *world) replace(m *machine) {
	w.mutex.Lock()
	many := len(w.machines) >= machines || !m.on
	if !many && len(m.tables.pods) > 0 {
		w.happened["a Node is deleted while pods of its machine run"]++
	}
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
	w.count("a machine is switched off and declared off")
	m.powerOff()
	time.Sleep(tenants.Drain)
	w.free(func(spec tenants.NodeSpec) bool {
		return spec.NodeUID == m.uid || w.rule == nodeUID && spec.Node == m.node
	})
}

// simulate plays runs with a rule left out until one goes wrong, and returns how many there were and what happened in them.
func simulate(t *testing.T, runs int, rule rule) (played int, happened map[string]int, fault string) {
	var next atomic.Int64
	var mutex sync.Mutex
	var group sync.WaitGroup
	happened = map[string]int{}
	for range 2 {
		group.Go(func() {
			for {
				seed := next.Add(1)
				mutex.Lock()
				done := fault != "" || seed > int64(runs)
				mutex.Unlock()
				if done {
					return
				}
				w := play(t, uint64(seed), rule)
				mutex.Lock()
				if played++; played%1000 == 0 {
					t.Logf("%d runs played", played)
				}
				for what, times := range w.happened {
					happened[what] += times
				}
				if w.fault != "" && fault == "" {
					fault = fmt.Sprintf("run %d: %s", seed, w.fault)
				}
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	return played, happened, fault
}

// runs is the number of runs: RAILWRIGHT_TEST_RUNS or the default.
func runs(usual int) int {
	if most, err := strconv.Atoi(os.Getenv("RAILWRIGHT_TEST_RUNS")); err == nil {
		return most
	}
	return usual
}

// happenings are all that must happen in the runs.
var happenings = []string{
	"a pod is granted its address", "two addresses change places between tenants", "a packet reaches a peer", "a peering comes or goes",
	"a namespace is made anew", "a Members object is deleted by hand", "a call finds the store away", "a machine loses the store", "the store is away",
	"a daemon ends while its flows stay", "a daemon starts while flows stay", "a daemon starts without the store while flows stay",
	"all daemons are upgraded while the store is away", "a machine is booted again", "a Node is deleted while pods of its machine run",
	"a machine is switched off and declared off", "the store is restored, and the epoch raised first",
	"the store is restored, and the epoch raised seconds later", "the store's clock jumps",
	"a node takes a stranger's address for a friend's", "a peering seems younger than the namespace that came after it",
}

func TestNoRunLetsAStrangerInOrGivesAnAddressTwice(t *testing.T) {
	usual := 100
	if os.Getenv("RAILWRIGHT_TEST_LONG") != "" {
		usual = 10_000
	}
	played, happened, fault := simulate(t, runs(usual), none)
	if fault != "" {
		t.Fatal(fault)
	}
	t.Logf("%d runs", played)
	for _, what := range happenings {
		t.Logf("%d times %s", happened[what], what)
		if happened[what] == 0 {
			t.Errorf("it never happened that %s", what)
		}
	}
	if granted := happened[happenings[0]]; granted < 3*played {
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
	for _, rule := range rules {
		t.Run(string(rule), func(t *testing.T) {
			played, _, fault := simulate(t, runs(1000), rule)
			if fault == "" {
				t.Errorf("%d runs without this rule let no stranger in", played)
			}
			t.Log(fault)
		})
	}
}
