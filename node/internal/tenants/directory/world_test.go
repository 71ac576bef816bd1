package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/table"
)

// Rules that are not the directory's but of who uses it.
const (
	none         rule = ""
	twoRounds    rule = "wait for two rounds of revalidation at a DEL"
	flowsFirst   rule = "remove flows, then rewrite the members"
	linearizable rule = "lists are linearizable"
	noTimeOut    rule = "a machine whose Node is gone keeps its addresses"
	nodeUID      rule = "a taint is of a Node with this UID"
	namespaceUID rule = "a namespace is its UID"
	procedure    rule = "raise the epoch after a restore"
)

// world is a cluster in a bubble of time that a test controls: a store, machines with switches, pods and packets in flight. A
// chance decides how long everything takes.
type world struct {
	t      *testing.T
	folder string
	rule   rule

	mutex    sync.Mutex
	random   *rand.Rand
	table    *table.Table
	restored chan struct{} // closed when the store is restored
	away     bool
	machines []*machine
	spaces   map[string]int // UIDs of namespaces
	made     map[string]time.Time
	policy   tenants.Policy
	skew     time.Duration // of the store's clock
	// friends holds which of the namespaces a and b were ever peered.
	friends  map[[2]int]bool
	peerings []peering
	heard    chan struct{} // closed when the policy changes
	lagging  *table.Table  // the table a moment ago
	backups  [][]byte
	pods     int
	// inFlight holds when a pod's packet to an address last left its node.
	inFlight map[flight]time.Time
	// open are the ways that were open when the flows last changed. changed means that they must be found again.
	open     []flight
	changed  bool
	fault    string
	notes    []string
	happened map[string]int
	calm     bool // no call takes seconds
	wrong    map[[2]*pod]bool
	bytes    map[string]int // of members, by machine
	writes   int
}

type flight struct {
	from *pod
	to   netip.Addr
}

// pod is a pod with an address.
type pod struct {
	id        int
	namespace string
	tenant    string
	address   netip.Addr
	leaving   bool
	// born is the UID of its namespace.
	born int
}

func (p *pod) owner() string { return fmt.Sprintf("pod-%d", p.id) }

// tables are the flows of a machine, and what its datapath has cached of them.
type tables struct {
	pods    map[netip.Addr]*pod
	members map[netip.Addr]string
	open    map[[2]string]bool
}

func (t tables) clone() tables {
	return tables{maps.Clone(t.pods), maps.Clone(t.members), maps.Clone(t.open)}
}

// lets reports whether packets between a pod here and an address pass.
func (t tables) lets(here *pod, there netip.Addr) bool {
	tenant := t.members[there]
	return t.pods[here.address] == here && tenant != "" &&
		(tenant == here.tenant || t.open[[2]string{min(tenant, here.tenant), max(tenant, here.tenant)}])
}

// machine is a node. Its pods and tables stay when its daemon ends.
type machine struct {
	w       *world
	node    string
	uid, id string
	name    string // of its RailNode
	boot    int
	folder  string
	// slowUntil is when the store's answers to what it creates are fast again, and lateUntil when it hears changes again.
	slowUntil, lateUntil time.Time
	on                   bool
	cut                  bool
	records              map[int]*pod
	tables               tables
	cached               tables
	version              int           // of the tables
	round                chan struct{} // closed when a round of revalidation ends
	busy                 map[int]bool
	view                 uint64
	program              turn
	daemon               *Directory
	stop                 context.CancelFunc
	finished             *sync.WaitGroup
}

func newWorld(t *testing.T, seed uint64, rule rule) *world {
	made, err := table.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, folder: shm(t), rule: rule, random: rand.New(rand.NewPCG(seed, 57)), table: made, lagging: made, restored: make(chan struct{}),
		spaces: map[string]int{}, made: map[string]time.Time{}, heard: make(chan struct{}), inFlight: map[flight]time.Time{}, bytes: map[string]int{},
		friends: map[[2]int]bool{}, happened: map[string]int{}, wrong: map[[2]*pod]bool{},
	}
}

// clock is the time of the store's clock. The caller holds the mutex.
func (w *world) clock() time.Time { return time.Now().Add(w.skew) }

// peering is a peering of a and b that there was, and the namespaces of both names that it is of: those that there were when it
// was made, and later ones that the store's clock calls older.
type peering struct {
	made time.Time
	of   map[string][]int
}

// befriend notes which namespaces are peered, now that a peering or a namespace was made. The caller holds the mutex.
func (w *world) befriend() {
	for _, p := range w.peerings {
		for _, name := range []string{"a", "b"} {
			if !slices.Contains(p.of[name], w.spaces[name]) && !p.made.Before(w.made[name]) {
				p.of[name] = append(p.of[name], w.spaces[name])
			}
		}
		for _, a := range p.of["a"] {
			for _, b := range p.of["b"] {
				w.friends[[2]int{a, b}] = true
			}
		}
	}
}

// setPeering peers the namespaces a and b, or ends that. The caller holds the mutex.
func (w *world) setPeering(peered bool) {
	w.policy = tenants.Policy{}
	if peered {
		w.policy.Peerings = []tenants.Peering{{A: "ns:a", B: "ns:b", Made: w.clock()}}
		w.peerings = append(w.peerings, peering{w.clock(), map[string][]int{}})
	}
	w.happened["a peering comes or goes"]++
	w.befriend()
	close(w.heard)
	w.heard = make(chan struct{})
}

func (w *world) draw(n int) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.random.IntN(n)
}

// set changes the world.
func (w *world) set(do func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	do()
}

// costs returns the number of writes of all nodes, and of the bytes of members that a node got.
func (w *world) costs(node string) (writes, bytes int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.writes, w.bytes[node]
}

// rest lets a random time pass.
func (w *world) rest(most time.Duration) { time.Sleep(time.Duration(w.draw(int(most)))) }

// client is a machine's connection to the store.
type client struct{ m *machine }

var errAway = errors.New("store is away")

func (c client) call(ctx context.Context, do func(*table.Table) error) error {
	return c.callSlow(ctx, 40, do)
}

// callSlow is call with the chance, one in slow, that it takes seconds on the way there, or back.
func (c client) callSlow(ctx context.Context, slow int, do func(*table.Table) error) error {
	w := c.m.w
	for range 2 {
		if w.rest(15 * time.Millisecond); w.draw(slow) == 0 && !w.calm {
			w.rest(4 * time.Second)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.mutex.Lock()
		away, held := w.away || c.m.cut, w.table
		w.mutex.Unlock()
		if away {
			w.count("a call finds the store away")
			return errAway
		}
		if do != nil {
			err := do(held)
			do = nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c client) wrote() {
	c.m.w.mutex.Lock()
	defer c.m.w.mutex.Unlock()
	c.m.w.writes++
}

func (c client) Create(ctx context.Context, object tenants.Object) (made tenants.Object, err error) {
	slow := 15
	c.m.w.mutex.Lock()
	if time.Now().Before(c.m.slowUntil) {
		slow = 2
	}
	c.m.w.mutex.Unlock()
	err = c.callSlow(ctx, slow, func(held *table.Table) (err error) {
		c.wrote()
		made, err = held.Create(ctx, object)
		return err
	})
	return made, err
}

func (c client) Update(ctx context.Context, object tenants.Object) (made tenants.Object, err error) {
	err = c.call(ctx, func(held *table.Table) (err error) {
		c.wrote()
		made, err = held.Update(ctx, object)
		return err
	})
	return made, err
}

func (c client) Delete(ctx context.Context, object tenants.Object) error {
	return c.call(ctx, func(held *table.Table) error {
		c.wrote()
		return held.Delete(ctx, object)
	})
}

func (c client) Get(ctx context.Context, kind tenants.Kind, space, name string) (got tenants.Object, err error) {
	err = c.call(ctx, func(held *table.Table) (err error) {
		got, err = held.Get(ctx, kind, space, name)
		return err
	})
	return got, err
}

func (c client) List(ctx context.Context, kind tenants.Kind, space string) (list tenants.List, err error) {
	if c.m.w.rule == linearizable && kind == tenants.KindMembers {
		// A server that lags behind answers with what was there.
		c.m.w.mutex.Lock()
		lagging := c.m.w.lagging
		c.m.w.mutex.Unlock()
		if list, err = lagging.List(ctx, kind, space); err == nil {
			err = c.call(ctx, nil)
		}
		return list, err
	}
	err = c.call(ctx, func(held *table.Table) (err error) {
		list, err = held.List(ctx, kind, space)
		return err
	})
	c.count(kind, list.Objects...)
	return list, err
}

func (c client) count(kind tenants.Kind, objects ...tenants.Object) {
	c.m.w.mutex.Lock()
	defer c.m.w.mutex.Unlock()
	for _, object := range objects {
		if kind == tenants.KindMembers {
			c.m.w.bytes[c.m.node] += len(object.Spec)
		}
	}
}

func (c client) Watch(ctx context.Context, kind tenants.Kind, space string, version uint64, heard func(tenants.Event)) error {
	if err := c.call(ctx, nil); err != nil {
		return err
	}
	w := c.m.w
	w.mutex.Lock()
	held, restored := w.table, w.restored
	w.mutex.Unlock()
	ctx, end := context.WithCancel(ctx)
	defer end()
	type sent struct {
		tenants.Event
		at time.Time
	}
	events := make(chan sent, 1000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = held.Watch(ctx, kind, space, version, func(event tenants.Event) { events <- sent{event, time.Now()} })
	}()
	defer func() { <-ended }()
	defer end()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-restored:
			return errAway
		case event := <-events:
			lag := 60 * time.Millisecond
			if w.draw(20) == 0 && !w.calm {
				lag = time.Duration(w.draw(int(10 * time.Second))) // and so for all that follows it
			}
			w.mutex.Lock()
			late := c.m.lateUntil
			w.mutex.Unlock()
			if event.at.Before(late) {
				lag = time.Until(late) + time.Duration(w.draw(int(5*time.Second))) + time.Since(event.at)
			}
			if !pause.For(ctx, time.Until(event.at.Add(lag))) {
				return ctx.Err()
			}
			w.mutex.Lock()
			away := w.away || c.m.cut || w.table != held
			w.mutex.Unlock()
			if away || ctx.Err() != nil {
				return errAway
			}
			c.count(kind, event.Object)
			heard(event.Event)
		}
	}
}

func (c client) WatchPolicy(ctx context.Context, heard func(tenants.Policy), _ func(error)) {
	for {
		c.m.w.mutex.Lock()
		policy, changed := c.m.w.policy, c.m.w.heard
		c.m.w.mutex.Unlock()
		if c.call(ctx, nil) != nil {
			if pause.For(ctx, time.Second) {
				continue
			}
			return
		}
		heard(policy)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (c client) Namespace(ctx context.Context, name string) (named tenants.Namespace, err error) {
	err = c.call(ctx, func(*table.Table) error {
		c.m.w.mutex.Lock()
		defer c.m.w.mutex.Unlock()
		named = tenants.Namespace{Name: name, UID: fmt.Sprint(c.m.w.spaces[name]), Made: c.m.w.made[name]}
		return nil
	})
	if c.m.w.rule == namespaceUID {
		named.UID, named.Made = "", time.Time{}
	}
	return named, err
}

func (c client) Machine(ctx context.Context, _ string) (tenants.Machine, error) {
	return tenants.Machine{NodeUID: c.m.uid, ID: c.m.id}, c.call(ctx, nil)
}

// join adds a machine and starts its daemon.
func (w *world) join(node string) *machine {
	w.mutex.Lock()
	id := fmt.Sprintf("m%d", len(w.machines))
	m := &machine{
		w: w, node: node, id: id, uid: "uid-" + id, folder: filepath.Join(w.folder, id), on: true, records: map[int]*pod{}, busy: map[int]bool{},
		tables: tables{map[netip.Addr]*pod{}, map[netip.Addr]string{}, map[[2]string]bool{}}, round: make(chan struct{}), program: make(turn, 1),
	}
	m.cached = m.tables.clone()
	w.machines = append(w.machines, m)
	w.mutex.Unlock()
	m.start()
	return m
}

// start starts the daemon, as after an upgrade: flows stay until stored pods are claimed.
func (m *machine) start() {
	ctx, stop := context.WithCancel(context.Background())
	without := m.w.rule
	if without == linearizable {
		without = seeRestore // which would notice
	}
	opened, err := Open(ctx, Settings{
		Node: m.node, Folder: m.folder, Store: client{m}, Machine: m.id, Boot: fmt.Sprint(m.boot), without: without,
	})
	if err != nil {
		m.w.t.Error(err)
	}
	m.w.mutex.Lock()
	m.daemon, m.stop, m.finished, m.view = opened, stop, &sync.WaitGroup{}, 0
	m.name = opened.state.name
	m.w.note("%s %s starts with %d pods, boot %d", m.id, m.name, len(m.records), m.boot)
	if len(m.tables.pods) > 0 {
		m.w.happened["a daemon starts while flows stay"]++
		if m.w.away || m.cut {
			m.w.happened["a daemon starts without the store while flows stay"]++
		}
	}
	records := slices.SortedFunc(maps.Values(m.records), func(a, b *pod) int { return a.id - b.id })
	finished := m.finished
	m.busy = map[int]bool{}
	m.w.mutex.Unlock()
	finished.Go(func() { m.run(ctx, opened, finished, records) })
	finished.Go(func() {
		for cached := -1; ctx.Err() == nil; {
			m.w.mutex.Lock()
			read, version := m.cached, m.version
			if version != cached {
				read = m.tables.clone()
			}
			m.w.mutex.Unlock()
			if m.w.rest(80 * time.Millisecond); m.w.draw(30) == 0 {
				m.w.rest(3 * time.Second)
			}
			m.w.mutex.Lock()
			if version != cached {
				m.w.change()
				m.cached, cached = read, version
			}
			close(m.round)
			m.round = make(chan struct{})
			m.w.check()
			m.w.mutex.Unlock()
		}
	})
}

func (m *machine) run(ctx context.Context, daemon *Directory, finished *sync.WaitGroup, records []*pod) {
	for _, record := range records {
		if !record.leaving {
			bound, cancel := context.WithTimeout(ctx, time.Second)
			err := daemon.Claim(bound, m.claimOf(record))
			cancel()
			if ctx.Err() == nil && err != nil {
				m.w.mutex.Lock()
				m.change()
				delete(m.tables.pods, record.address)
				m.w.note("%s cuts pod %d at its start: %v", m.id, record.id, err)
				m.w.mutex.Unlock()
			}
		}
	}
	m.apply(ctx, daemon)
	finished.Go(func() {
		for pause.For(ctx, 500*time.Millisecond) {
			m.keep(ctx, daemon)
			m.finish(ctx, daemon, finished)
		}
	})
	for {
		changed := daemon.Changed()
		m.apply(ctx, daemon)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		m.w.rest(30 * time.Millisecond)
	}
}

func (m *machine) claimOf(p *pod) tenants.Claim {
	return tenants.Claim{Tenant: p.tenant, Owner: p.owner(), Addresses: []netip.Addr{p.address}}
}

// apply programs the view, with pods that were just claimed.
func (m *machine) apply(ctx context.Context, daemon *Directory, fresh ...*pod) {
	_ = m.program.take(context.Background())
	defer m.program.give()
	change := daemon.Since(m.view)
	m.w.rest(5 * time.Millisecond)
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	if ctx.Err() != nil || !m.on || m.daemon != daemon {
		return
	}
	m.change()
	if change.Whole {
		clear(m.tables.members)
	}
	for _, member := range change.Removed {
		delete(m.tables.members, member.Prefix.Addr())
	}
	for _, member := range change.Added {
		m.tables.members[member.Prefix.Addr()] = member.Tenant
		if member.Prefix.Addr().Less(addressOf(90)) {
			m.w.note("%s takes %s for %s, whole %v, pairs %v", m.id, member.Prefix.Addr(), member.Tenant, change.Whole, change.Pairs)
		}
	}
	m.tables.open = map[[2]string]bool{}
	for _, pair := range change.Pairs {
		m.tables.open[pair] = true
	}
	for _, p := range fresh {
		if m.records[p.id] == p && !p.leaving {
			m.tables.pods[p.address] = p
			m.w.note("%s starts pod %d of %s at %s", m.id, p.id, p.tenant, p.address)
			if m.tables.members[p.address] != p.tenant {
				m.w.fail("the view lacks %s of tenant %s when its claim has returned", p.address, p.tenant)
			}
		}
	}
	m.view = change.Version
	m.w.check()
}

// keep cuts off pods whose addresses were lost, and claims again what is not claimed.
func (m *machine) keep(ctx context.Context, daemon *Directory) {
	for _, p := range m.idle(func(p *pod) bool { return !p.leaving }) {
		if !daemon.Holds([]netip.Addr{p.address}) {
			m.w.mutex.Lock()
			m.change()
			delete(m.tables.pods, p.address)
			m.w.mutex.Unlock()
			m.settle(ctx, 2)
			bound, cancel := context.WithTimeout(ctx, 3*time.Second)
			err := daemon.Claim(bound, m.claimOf(p))
			if errors.Is(err, tenants.ErrLost) && bound.Err() == nil && daemon.Withdraw(bound, []netip.Addr{p.address}) == nil {
				err = daemon.Claim(bound, m.claimOf(p))
			}
			if err == nil {
				m.apply(ctx, daemon, p)
			}
			cancel()
		}
		m.free(p)
	}
}

// idle returns the pods that nothing works on, and marks them.
func (m *machine) idle(which func(*pod) bool) []*pod {
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	var found []*pod
	for _, id := range slices.Sorted(maps.Keys(m.records)) {
		if p := m.records[id]; !m.busy[id] && which(p) {
			m.busy[id] = true
			found = append(found, p)
		}
	}
	return found
}

func (m *machine) free(p *pod) {
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	delete(m.busy, p.id)
}

// settle waits for rounds of revalidation.
func (m *machine) settle(ctx context.Context, rounds int) {
	for range rounds {
		m.w.mutex.Lock()
		round := m.round
		m.w.mutex.Unlock()
		select {
		case <-ctx.Done():
		case <-round:
		}
	}
}

// add starts a pod.
func (m *machine) add(namespace string, address netip.Addr) {
	m.w.mutex.Lock()
	daemon, finished := m.daemon, m.finished
	m.w.pods++
	p := &pod{id: m.w.pods, namespace: namespace, address: address}
	m.w.mutex.Unlock()
	if daemon == nil {
		return
	}
	finished.Go(func() {
		ctx, cancel := context.WithTimeout(daemon.ctx, 5*time.Second)
		defer cancel()
		tenant, err := daemon.TenantOf(ctx, namespace)
		if err != nil {
			return
		}
		m.w.mutex.Lock()
		p.tenant, p.born = tenant, m.w.spaces[namespace]
		if m.w.rule != namespaceUID && tenant != fmt.Sprintf("ns:%s@%d", namespace, p.born) {
			m.w.mutex.Unlock()
			return // the namespace changed this moment
		}
		for _, other := range m.records {
			if other.address == address {
				m.w.mutex.Unlock()
				return
			}
		}
		m.records[p.id], m.busy[p.id] = p, true
		m.w.mutex.Unlock()
		defer m.free(p)
		if err := daemon.Claim(ctx, m.claimOf(p)); err != nil {
			m.w.mutex.Lock()
			p.leaving = true
			m.w.mutex.Unlock()
			return
		}
		m.w.mutex.Lock()
		m.w.happened["a pod is granted its address"]++
		m.w.mutex.Unlock()
		m.apply(ctx, daemon, p)
	})
}

// del ends pods.
func (m *machine) del(which func(*pod) bool) {
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	for _, p := range m.records {
		if which(p) {
			p.leaving = true
		}
	}
}

// finish undoes what leaves.
func (m *machine) finish(ctx context.Context, daemon *Directory, finished *sync.WaitGroup) {
	for _, p := range m.idle(func(p *pod) bool { return p.leaving }) {
		finished.Go(func() {
			defer m.free(p)
			bound, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if m.w.rule == flowsFirst {
				_ = daemon.Release(bound, []netip.Addr{p.address})
				m.w.rest(500 * time.Millisecond)
			}
			m.w.mutex.Lock()
			if m.tables.pods[p.address] == p {
				m.change()
				delete(m.tables.pods, p.address)
				m.w.note("%s ends pod %d at %s", m.id, p.id, p.address)
			}
			m.w.mutex.Unlock()
			if m.w.rule == twoRounds {
				m.settle(bound, 1)
			} else {
				m.settle(bound, 2)
			}
			if bound.Err() != nil || daemon.Withdraw(bound, []netip.Addr{p.address}) != nil || daemon.Release(bound, []netip.Addr{p.address}) != nil {
				return
			}
			m.w.mutex.Lock()
			m.w.note("%s released pod %d at %s", m.id, p.id, p.address)
			delete(m.records, p.id)
			m.w.mutex.Unlock()
		})
	}
}

// end ends the daemon; flows stay.
func (m *machine) end() {
	m.w.mutex.Lock()
	daemon, stop, finished := m.daemon, m.stop, m.finished
	m.daemon = nil
	if daemon != nil && len(m.tables.pods) > 0 {
		m.w.happened["a daemon ends while its flows stay"]++
	}
	m.w.mutex.Unlock()
	if daemon == nil {
		return
	}
	stop()
	finished.Wait()
	daemon.Close()
}

// powerOff ends the machine with its pods and flows.
func (m *machine) powerOff() {
	m.end()
	m.w.mutex.Lock()
	defer m.w.mutex.Unlock()
	m.on = false
	m.change()
	clear(m.tables.pods)
	clear(m.tables.members)
	m.cached = m.tables.clone()
	for _, p := range m.records {
		p.leaving = true
	}
}

// reboot starts the machine again.
func (m *machine) reboot() {
	m.powerOff()
	m.w.mutex.Lock()
	m.w.happened["a machine is booted again"]++
	m.on = true
	m.boot++
	m.w.mutex.Unlock()
	m.start()
}

// fail notes the first thing that went wrong, with the last notes. The caller holds the mutex.
func (w *world) fail(format string, values ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf("%s: "+format, append([]any{time.Now().Format("05.000")}, values...)...)
		for _, line := range w.notes[max(0, len(w.notes)-90):] {
			w.fault += "\n" + line
		}
	}
}

// note keeps a line for the failure of a run.
func (w *world) note(format string, values ...any) {
	w.notes = append(w.notes, time.Now().Format("05.000 ")+fmt.Sprintf(format, values...))
}

// count notes that something happened.
func (w *world) count(what string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.happened[what]++
}

// strangers reports whether packets between two pods must not pass: their namespaces differ and were never peered.
func (w *world) strangers(a, b *pod) bool {
	if a.namespace > b.namespace {
		a, b = b, a
	}
	if a.namespace == b.namespace {
		return a.born != b.born
	}
	return a.namespace != "a" || b.namespace != "b" || !w.friends[[2]int{a.born, b.born}]
}

// change tells that flows of the machine are about to change. The caller holds the mutex.
func (m *machine) change() {
	m.version++
	m.w.change()
}

// change tells that flows or caches are about to change: packets left until now. The caller holds the mutex.
func (w *world) change() {
	w.send()
	w.changed = true
}

// send lets packets leave on all ways that are open. The caller holds the mutex.
func (w *world) send() {
	if w.changed {
		return // since the last change they may be closed
	}
	for _, way := range w.open {
		w.inFlight[way] = time.Now()
	}
}

// check finds an address that two pods have, and packets that get to a stranger. The caller holds the mutex.
func (w *world) check() {
	if w.send(); !w.changed {
		return
	}
	now := time.Now()
	w.changed, w.open = false, nil
	type port struct {
		m *machine
		p *pod
	}
	var ports []port
	for _, m := range w.machines {
		for _, p := range m.tables.pods {
			ports = append(ports, port{m, p})
		}
		for address, p := range m.cached.pods {
			if m.tables.pods[address] != p {
				ports = append(ports, port{m, p})
			}
		}
	}
	seen := map[netip.Addr]*pod{}
	for _, at := range ports {
		if other := seen[at.p.address]; other != nil && other != at.p {
			w.fail("%s is of pod %d of %s and of pod %d of %s", at.p.address, other.id, other.tenant, at.p.id, at.p.tenant)
		}
		seen[at.p.address] = at.p
	}
	for _, from := range ports {
		for _, to := range ports {
			if from.m.tables.lets(from.p, to.p.address) || from.m.cached.lets(from.p, to.p.address) {
				w.open = append(w.open, flight{from.p, to.p.address})
				w.inFlight[flight{from.p, to.p.address}] = now
				if way := [2]*pod{from.p, to.p}; w.strangers(from.p, to.p) && !w.wrong[way] {
					w.wrong[way] = true
					w.happened["a node takes a stranger's address for a friend's"]++
				}
			}
		}
	}
	for way, left := range w.inFlight {
		if now.Sub(left) > tenants.Drain*9/10 {
			delete(w.inFlight, way)
			continue
		}
		for _, at := range ports {
			if at.p.address != way.to || !at.m.tables.lets(at.p, way.from.address) && !at.m.cached.lets(at.p, way.from.address) {
				continue
			}
			if way.from.namespace != at.p.namespace {
				w.happened["a packet reaches a peer"]++
			}
			if w.strangers(way.from, at.p) {
				w.fail("a packet of pod %d of %s at %s reached pod %d of %s at %s", way.from.id, way.from.tenant, way.from.address, at.p.id,
					at.p.tenant, at.p.address)
			}
		}
	}
}

// play plays a run.
func play(t *testing.T, seed uint64, rule rule) (played *world) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, rule)
		for _, name := range []string{"a", "b", "c"} {
			w.made[name] = w.clock()
		}
		w.setPeering(w.draw(2) == 0)
		// Lasting pods make nodes go by tenants all the time, so that they can be behind.
		for i, node := range []string{"n0", "n1", "n2"} {
			m := w.join(node)
			time.Sleep(time.Second)
			if i == 1 {
				w.backups = append(w.backups, w.table.Backup())
			}
			for space := range 3 {
				if w.draw(2) == 0 {
					m.add(namespace(space), addressOf(100+3*i+space))
				}
			}
		}
		time.Sleep(2 * time.Second)
		whole := func() bool {
			w.mutex.Lock()
			defer w.mutex.Unlock()
			return w.fault == ""
		}
		if w.draw(3) > 0 {
			w.join("n3")
			for round := 0; round < crossings && whole(); round++ {
				w.cross(round)
			}
		} else {
			for step := 0; step < steps && whole(); step++ {
				w.chaos(step)
			}
		}
		w.mutex.Lock()
		machines := slices.Clone(w.machines)
		w.mutex.Unlock()
		for _, m := range machines {
			m.end()
		}
		played = w
	})
	return played
}

// shm returns a folder in memory, where it costs nothing to wait for the disk.
func shm(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "railwright-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
