package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/table"
)

// open opens a node's part over a store and closes it with the test.
func open(t *testing.T, node, folder string, store tenants.Store) *Directory {
	t.Helper()
	opened, err := Open(t.Context(), Settings{Node: node, Folder: folder, Store: store, Machine: "machine-" + node, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened
}

func newTable(t *testing.T) *table.Table {
	t.Helper()
	made, err := table.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func claimOf(tenant, owner string, addresses ...string) tenants.Claim {
	claim := tenants.Claim{Tenant: tenant, Rail: "rail0", Owner: owner}
	for _, text := range addresses {
		claim.Addresses = append(claim.Addresses, netip.MustParseAddr(text))
	}
	return claim
}

func mustClaim(t *testing.T, d *Directory, claim tenants.Claim) {
	t.Helper()
	if err := d.Claim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// members returns the view as text.
func membersOf(d *Directory) string {
	var all []string
	for _, member := range d.Since(0).Added {
		all = append(all, member.Prefix.Addr().String()+" "+member.Tenant)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// inTime runs a test in a bubble of time.
func inTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// deaf is a store whose next answer to a write of members is lost.
type deaf struct {
	tenants.Store
	loses bool
}

func (s *deaf) Update(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	written, err := s.Store.Update(ctx, object)
	if s.loses && object.Kind == tenants.KindMembers {
		s.loses = false
		return object, errors.New("connection reset")
	}
	return written, err
}

// TestALostAnswerIsNoProofThatMembersStayed publishes an address without hearing of it, and gives it up: the members must
// lose it.
func TestALostAnswerIsNoProofThatMembersStayed(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := &deaf{Store: newTable(t)}
		d := open(t, "n1", shm(t), store)
		mustClaim(t, d, claimOf("ns:a", "p1", "10.1.0.1"))
		store.loses = true
		if err := d.Claim(t.Context(), claimOf("ns:a", "p2", "10.1.0.2")); err == nil || store.loses {
			t.Fatal("the answer was not lost:", err)
		}
		if err := d.Release(t.Context(), claimOf("", "", "10.1.0.2").Addresses); err != nil {
			t.Fatal(err)
		}
		list, err := store.List(t.Context(), tenants.KindMembers, "ns:a")
		if err != nil || len(list.Objects) != 1 || strings.Contains(string(list.Objects[0].Spec), "10.1.0.2") {
			t.Errorf("%d members, %v: %+v", len(list.Objects), err, list.Objects)
		}
	})
}

// slowMachines is a store that is slow to tell about a machine.
type slowMachines struct{ tenants.Store }

func (s slowMachines) Machine(ctx context.Context, node string) (tenants.Machine, error) {
	time.Sleep(time.Second)
	return s.Store.Machine(ctx, node)
}

// TestAnObjectThatStaysIsNotARestore restarts a daemon whose own objects are older than what it has gone by, and must stay so:
// a write that changes nothing returns their version.
func TestAnObjectThatStaysIsNotARestore(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store, folder := newTable(t), shm(t)
		first, second := open(t, "n1", folder, store), open(t, "n2", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		mustClaim(t, second, claimOf("ns:a", "p2", "10.1.0.2"))
		mustClaim(t, first, claimOf("ns:a", "p3", "10.1.0.3"))
		mustClaim(t, second, claimOf("ns:a", "p4", "10.1.0.4"))
		first.Close()
		first = open(t, "n1", folder, slowMachines{store})
		time.Sleep(time.Minute)
		mustClaim(t, first, claimOf("ns:a", "p5", "10.1.0.5"))
		if stopped := first.Stopped(); len(stopped) > 0 {
			t.Errorf("%q", stopped)
		}
	})
}

func TestAClaimIsInTheViewOnceItReturns(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := newTable(t)
		first, second := open(t, "n1", shm(t), store), open(t, "n2", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1", "fd00::1"))
		mustClaim(t, second, claimOf("ns:a", "p2", "10.1.0.2"))
		if got := membersOf(second); got != "10.1.0.1 ns:a, 10.1.0.2 ns:a, fd00::1 ns:a" {
			t.Errorf("view of the later node when its claim returns: %s", got)
		}
		synctest.Wait()
		if got := membersOf(first); got != membersOf(second) {
			t.Errorf("view of the earlier node: %s", got)
		}
		mustClaim(t, second, claimOf("ns:b", "p3", "10.1.0.3"))
		if got := membersOf(first); strings.Contains(got, "10.1.0.3") {
			t.Errorf("a node without pods of the tenant has %s", got)
		}
		err := first.Claim(t.Context(), claimOf("ns:b", "p4", "10.1.0.2"))
		if !errors.Is(err, tenants.ErrTaken) || !strings.Contains(err.Error(), "on node n2") {
			t.Errorf("claim of another node's address: %v", err)
		}
		if err := second.Release(t.Context(), claimOf("", "", "10.1.0.2").Addresses); err != nil {
			t.Fatal(err)
		}
		mustClaim(t, first, claimOf("ns:b", "p4", "10.1.0.2"))
	})
}

func TestWithoutTheStoreANodeGoesByItsDisk(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := newWorld(t, 1, none)
		w.calm = true
		m, other := w.join("n0"), w.join("n1")
		time.Sleep(time.Second)
		other.add("a", addressOf(1))
		time.Sleep(5 * time.Second)
		m.add("a", addressOf(0))
		time.Sleep(5 * time.Second)
		w.set(func() { w.away = true })
		m.end()
		m.start()
		time.Sleep(3 * time.Second)
		if got := membersOf(m.daemon); got != "10.1.0.1 ns:a@0, 10.1.0.2 ns:a@0" {
			t.Errorf("after a restart without the store: %s", got)
		}
		if !m.daemon.Holds([]netip.Addr{addressOf(0)}) || len(m.daemon.Stopped()) != 1 {
			t.Errorf("holds %v, stopped %q", m.daemon.Holds([]netip.Addr{addressOf(0)}), m.daemon.Stopped())
		}
		if err := m.daemon.Claim(t.Context(), claimOf("ns:a@0", "new", "10.1.0.9")); !errors.Is(err, tenants.ErrUnreachable) {
			t.Errorf("claim without the store: %v", err)
		}
		w.set(func() { w.away = false })
		m.end()
		other.end()
	})
}

// TestWritesAndBytesDoNotGrowWithTheCluster counts writes of an ADD and a DEL, and what reaches a node without the tenant.
func TestWritesAndBytesDoNotGrowWithTheCluster(t *testing.T) {
	for _, nodes := range []int{50, 1000} {
		if nodes > 50 && os.Getenv("RAILWRIGHT_TEST_LONG") == "" {
			continue // takes minutes
		}
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				w := newWorld(t, 1, none)
				w.calm = true
				for i := range nodes {
					w.join(fmt.Sprintf("n%d", i))
				}
				time.Sleep(30 * time.Second)
				mover, watcher, stranger := w.machines[0], w.machines[1], w.machines[2]
				watcher.add("a", addressOf(1))
				mover.add("a", addressOf(2))
				stranger.add("b", addressOf(3))
				time.Sleep(30 * time.Second)
				w.set(func() { w.writes, w.bytes, w.policy = 0, map[string]int{}, tenants.Policy{} })
				mover.add("a", addressOf(4))
				time.Sleep(30 * time.Second)
				if writes, _ := w.costs(""); writes != 2 {
					t.Errorf("an ADD makes %d writes", writes)
				}
				if _, bytes := w.costs("n1"); bytes == 0 {
					t.Error("a node with the tenant hears nothing")
				}
				w.set(func() { w.writes = 0 })
				mover.del(func(p *pod) bool { return p.address == addressOf(4) })
				time.Sleep(30 * time.Second)
				if writes, _ := w.costs(""); writes != 2 {
					t.Errorf("a DEL makes %d writes", writes)
				}
				for _, m := range w.machines[2:] {
					if _, bytes := w.costs(m.node); bytes != 0 {
						t.Errorf("%s without the tenant gets %d bytes of its members", m.node, bytes)
					}
				}
				for _, m := range w.machines {
					m.end()
				}
			})
		})
	}
}

// TestAPeeringGoesByTheStoresClock makes a namespace anew that is peered. By its creation time the peering is not its own,
// unless the store's clock went back meanwhile: nothing else tells which came first.
func TestAPeeringGoesByTheStoresClock(t *testing.T) {
	for back, want := range map[time.Duration]string{0: "", time.Hour: "ns:a@1 ns:b@0"} {
		inTime(t, func(t *testing.T) {
			w := newWorld(t, 1, none)
			w.calm = true
			m := w.join("n0")
			w.mutex.Lock()
			w.setPeering(true)
			w.mutex.Unlock()
			time.Sleep(time.Second)
			w.mutex.Lock()
			w.skew = -back
			w.spaces["a"], w.made["a"] = 1, w.clock()
			w.mutex.Unlock()
			m.add("a", addressOf(1))
			m.add("b", addressOf(2))
			time.Sleep(5 * time.Second)
			var got []string
			for _, pair := range m.daemon.Since(0).Pairs {
				got = append(got, pair[0]+" "+pair[1])
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("clock set back by %v: peered %q, want %q", back, got, want)
			}
			m.end()
		})
	}
}

// TestAPeeringIsOfTheNamespacesThatThereAre has a pod of a namespace that was deleted, when a later one is peered.
func TestAPeeringIsOfTheNamespacesThatThereAre(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := newWorld(t, 1, none)
		w.calm = true
		m := w.join("n0")
		m.add("a", addressOf(1))
		m.add("b", addressOf(2))
		time.Sleep(5 * time.Second)
		w.mutex.Lock()
		w.spaces["a"], w.made["a"] = 1, w.clock()
		w.setPeering(true)
		w.mutex.Unlock()
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			for _, pair := range m.daemon.Since(0).Pairs {
				if pair != [2]string{"ns:a@1", "ns:b@0"} {
					t.Errorf("a pod of the deleted namespace is peered: %q", pair)
				}
			}
		}
		if tenant, err := m.daemon.Regroup(t.Context(), "a", "ns:a@0"); tenant != "ns:a@0" || err != nil {
			t.Errorf("its tenant becomes %q, %v", tenant, err)
		}
		if pairs := m.daemon.Since(0).Pairs; len(pairs) != 1 {
			t.Errorf("peered are %q", pairs)
		}
		m.end()
	})
}

func TestDeletedMembersHeal(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := newTable(t)
		first, second := open(t, "n1", shm(t), store), open(t, "n2", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		mustClaim(t, second, claimOf("ns:a", "p2", "10.1.0.2"))
		list, err := store.List(t.Context(), tenants.KindMembers, "ns:a")
		if err != nil || len(list.Objects) != 2 {
			t.Fatal(list, err)
		}
		if err := store.Delete(t.Context(), list.Objects[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := membersOf(second); got != "10.1.0.2 ns:a" {
			t.Errorf("after the deletion: %s", got)
		}
		time.Sleep(5 * time.Second)
		if got := membersOf(second); got != "10.1.0.1 ns:a, 10.1.0.2 ns:a" {
			t.Errorf("some seconds later: %s", got)
		}
	})
}

// TestObjectsOfOtherVersions has a node of a later version, whose objects have more fields, and one that cannot be read.
func TestObjectsOfOtherVersions(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := newTable(t)
		first := open(t, "n1", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		object, err := store.Get(t.Context(), tenants.KindMembers, "ns:a", first.state.name)
		if err != nil {
			t.Fatal(err)
		}
		object.Spec = json.RawMessage(strings.Replace(string(object.Spec), "{", `{"later": {"field": 1}, `, 1))
		if _, err = store.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		for name, spec := range map[string]string{
			"n7.00000007": `{"addresses": ["10.1.0.7"], "epoch": "` + first.epoch() + `", "later": true}`,
			"n8.00000008": `{"addresses": ["10.1.0.8", "not an address"]}`,
			"n9.00000009": `[]`,
		} {
			made := tenants.Object{Kind: tenants.KindMembers, Space: "ns:a", Name: name, Spec: json.RawMessage(spec)}
			if _, err := store.Create(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		mustClaim(t, first, claimOf("ns:a", "p2", "10.1.0.2"))
		if got := membersOf(first); got != "10.1.0.1 ns:a, 10.1.0.2 ns:a, 10.1.0.7 ns:a" {
			t.Errorf("view: %s", got)
		}
		problems := strings.Join(first.Problems(), "\n")
		if !strings.Contains(problems, "n8.00000008 do not count") || !strings.Contains(problems, "n9.00000009 do not count") || len(first.Stopped()) != 0 {
			t.Errorf("problems %s, stopped %q", problems, first.Stopped())
		}
		object, err = store.Get(t.Context(), tenants.KindMembers, "ns:a", first.state.name)
		if err != nil || !strings.Contains(string(object.Spec), `"later":{"field":1}`) || !strings.Contains(string(object.Spec), "10.1.0.2") {
			t.Errorf("%s, %v", object.Spec, err)
		}
	})
}

// TestTheFirstThatNamesAnAddressCounts has another node name an address in use for its own tenant.
func TestTheFirstThatNamesAnAddressCounts(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := newTable(t)
		first, victim := open(t, "n1", shm(t), store), open(t, "n2", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		mustClaim(t, first, claimOf("ns:b", "p2", "10.1.0.2"))
		mustClaim(t, victim, claimOf("ns:a", "p3", "10.1.0.3"))
		synctest.Wait()
		forge := func(name string) {
			made := tenants.Object{Kind: tenants.KindMembers, Space: "ns:b", Name: name, Spec: tenants.Merge(nil, tenants.MembersSpec{
				Addresses: claimOf("", "", "10.1.0.3", "10.1.0.1").Addresses, Epoch: first.epoch(),
			})}
			if _, err := store.Create(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		forge("n9.00000009")
		synctest.Wait()
		if got := membersOf(first); got != "10.1.0.1 ns:a, 10.1.0.2 ns:b, 10.1.0.3 ns:a" {
			t.Errorf("view: %s", got)
		}
		if problems := first.Problems(); len(problems) != 2 {
			t.Errorf("problems %q", problems)
		}
	})
}

func TestADamagedJournalIsKeptAsideAndItsClaimsAreTakenOver(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store, folder := newTable(t), shm(t)
		first := open(t, "n1", folder, store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		mustClaim(t, first, claimOf("ns:a", "p2", "10.1.0.2"))
		first.Close()
		path := filepath.Join(folder, "journal")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		torn := text[:len(text)-5]
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		if kept, warning, err := openJournal(folder, "n1"); err != nil || warning != "" || len(kept.kept.owns) != 2 {
			t.Errorf("a line that was not written whole: %d addresses, %q, %v", len(kept.kept.owns), warning, err)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, "n1", folder, store)
		if problems := again.Problems(); len(problems) != 1 || !strings.Contains(problems[0], "journal.damaged") {
			t.Errorf("problems %q", problems)
		}
		mustClaim(t, again, claimOf("ns:a", "p1", "10.1.0.1"))
		if err := again.Claim(t.Context(), claimOf("ns:b", "p9", "10.1.0.2")); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("an address of the lost state: %v", err)
		}
		if err := again.Retain(t.Context(), []string{"p1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * earlierHold)
		mustClaim(t, again, claimOf("ns:b", "p9", "10.1.0.2"))
		if got := membersOf(again); got != "10.1.0.1 ns:a, 10.1.0.2 ns:b" {
			t.Errorf("view: %s", got)
		}
		if _, err := openJournal2(folder, "n2"); err == nil {
			t.Error("another node's state is accepted")
		}
	})
}

func openJournal2(folder, node string) (*journal, error) {
	kept, _, err := openJournal(folder, node)
	return kept, err
}

// TestFirstPackets measures, at 1,000 nodes with a pod of the tenant, the time from the return of a claim until every
// node's view has it. It asserts that all get it, never a time.
func TestFirstPackets(t *testing.T) {
	if os.Getenv("RAILWRIGHT_TEST_LONG") == "" {
		t.Skip("takes a minute; set RAILWRIGHT_TEST_LONG=1")
	}
	store, folder := newTable(t), shm(t)
	var nodes []*Directory
	for i := range 1000 {
		d := open(t, fmt.Sprintf("n%d", i), filepath.Join(folder, fmt.Sprint(i)), store)
		mustClaim(t, d, claimOf("ns:a", "p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255)))
		nodes = append(nodes, d)
	}
	time.Sleep(2 * time.Second)
	var took []time.Duration
	for i := range 100 {
		address := netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})
		mustClaim(t, nodes[i], tenants.Claim{Tenant: "ns:a", Owner: "q", Addresses: []netip.Addr{address}})
		began := time.Now()
		for _, d := range nodes {
			for has := false; !has; {
				d.mutex.Lock()
				has = d.state.shown[address] != ""
				changed := d.changed
				d.mutex.Unlock()
				if !has {
					<-changed
				}
			}
			took = append(took, time.Since(began))
		}
		time.Sleep(100 * time.Millisecond)
	}
	slices.Sort(took)
	t.Logf("from the return of a claim until a peer has it: p50 %v, p99 %v, most %v, over %d", took[len(took)/2], took[len(took)*99/100],
		took[len(took)-1], len(took))
}

func TestAMachineThatWasDeclaredOffClaimsAgain(t *testing.T) {
	inTime(t, func(t *testing.T) {
		store := newTable(t)
		first, second := open(t, "n1", shm(t), store), open(t, "n2", shm(t), store)
		mustClaim(t, first, claimOf("ns:a", "p1", "10.1.0.1"))
		mustClaim(t, first, claimOf("ns:a", "p2", "10.1.0.2"))
		if freed, err := Forget(t.Context(), store, "n1"); freed != 1 || err != nil {
			t.Fatal(freed, err)
		}
		mustClaim(t, second, claimOf("ns:b", "p3", "10.1.0.1"))
		time.Sleep(2 * selfEvery)
		if first.Holds(claimOf("", "", "10.1.0.1").Addresses) || membersOf(first) != "" {
			t.Errorf("it still goes by %s", membersOf(first))
		}
		if err := first.Claim(t.Context(), claimOf("ns:a", "p1", "10.1.0.1")); !errors.Is(err, tenants.ErrLost) {
			t.Errorf("%v", err)
		}
		// The reconciler has removed the flows.
		if err := first.Withdraw(t.Context(), claimOf("", "", "10.1.0.1", "10.1.0.2").Addresses); err != nil {
			t.Fatal(err)
		}
		mustClaim(t, first, claimOf("ns:a", "p2", "10.1.0.2"))
		if err := first.Claim(t.Context(), claimOf("ns:a", "p1", "10.1.0.1")); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("%v", err)
		}
	})
}

// large fills a tenant with the pods of many nodes.
func large(t testing.TB, store tenants.Store, epoch string, nodes, each int) {
	for i := range nodes {
		var spec tenants.MembersSpec
		spec.Epoch = epoch
		for j := range each {
			spec.Addresses = append(spec.Addresses, netip.AddrFrom4([4]byte{10, byte(64 + i>>8), byte(i), byte(j)}))
		}
		object := tenants.Object{
			Kind: tenants.KindMembers, Space: "ns:a", Name: fmt.Sprintf("n%d.%08x", i+10, i+10), Spec: tenants.Merge(nil, spec),
		}
		if _, err := store.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALargeTenant measures a daemon at 1,000 nodes x 64 addresses: what it needs, a heard change, and that its state
// loads again. It asserts the size of the state, never a time.
func TestALargeTenant(t *testing.T) {
	store, folder := newTable(t), shm(t)
	d := open(t, "n1", folder, store)
	for d.epoch() == "" {
		time.Sleep(time.Millisecond)
	}
	large(t, store, d.epoch(), 1000, 64)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mustClaim(t, d, claimOf("ns:a", "p1", "10.1.0.1"))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := len(d.Since(0).Added); got != 64001 {
		t.Fatalf("%d members", got)
	}
	t.Logf("a tenant of 64,000 addresses takes %d MiB", (after.HeapAlloc-before.HeapAlloc)>>20)
	object, err := store.Get(t.Context(), tenants.KindMembers, "ns:a", "n10.0000000a")
	if err != nil {
		t.Fatal(err)
	}
	const changes = 200
	began, cpu := time.Now(), cpuTime(t)
	for i := range changes {
		spec, _ := tenants.Decode[tenants.MembersSpec](object)
		spec.Addresses[0] = netip.AddrFrom4([4]byte{10, 200, byte(i), 1})
		object.Spec = tenants.Merge(object.Spec, spec)
		version := d.Version()
		changed := d.Changed()
		if object, err = store.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		<-changed
		for d.Version() < version+2 {
			runtime.Gosched()
		}
		if change := d.Since(version); change.Whole || len(change.Added) != 1 || len(change.Removed) != 1 {
			t.Fatalf("a heard change is told as %d added and %d removed, whole %v", len(change.Added), len(change.Removed), change.Whole)
		}
	}
	t.Logf("a heard change: %v of CPU, %v", (cpuTime(t)-cpu)/changes, time.Since(began)/changes)
	d.Close()
	began = time.Now()
	kept, warning, err := openJournal(folder, "n1")
	if err != nil || warning != "" || len(kept.kept.spaces["ns:a"].objects) != 1000 {
		t.Fatalf("%q, %v", warning, err)
	}
	size, err := os.Stat(filepath.Join(folder, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the state has %d KiB and loads in %v", size.Size()>>10, time.Since(began))
}

func cpuTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
