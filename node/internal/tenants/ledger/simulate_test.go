package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// world simulates a few machines, each with a ledger, a switch with flows and pods that send, and a store whose records
// each machine receives late and at its own pace. Each step is an event that can happen on its own: half a request, a
// lost reply, or a machine that is cut off, restarted, switched off, declared off or back again.
type world struct {
	t        testing.TB
	random   *rand.Rand
	now      time.Time
	store    map[string][]*tenants.Record // every state of each record; nil means deleted
	order    []string
	policies []*tenants.Policy
	machines []*machine
	sequence uint64
	draining []sender
	story    []string
	// misuse also deletes records of machines that are off by hand.
	misuse bool
	// quiet is the average number of steps between calamities.
	quiet int
	// weights are the relative frequencies of outage, kill, power cut, policy change and lost state.
	weights [5]int
	// pace is the maximum duration of a step in ms.
	pace     int
	prefixes bool
	granted  int
	reused   int
	lastOf   map[netip.Addr]string
}

// sender is a pod that sends, or a pod's packets after its end.
type sender struct {
	address netip.Addr
	tenant  string
	until   time.Time
}

type pod struct {
	tenant string
	owner  string
}

// machine is a node with its daemon. Its flows and pods outlive the daemon.
type machine struct {
	name           string
	on, up, online bool
	ledger         *Ledger
	cursor         map[string]int
	policy         int
	ownState       []byte
	knownState     []byte
	pods           map[netip.Addr]pod
	flows          plan.Tenants
	planned        *plan.Tenants
	plannedVersion uint64
	installed      uint64
	publishing     *tenants.Record
	published      bool
	reading        *tenants.Snapshot
	readingSince   int64
	asking         map[netip.Addr]tenants.Claim
}

var (
	simulated = []netip.Addr{
		netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd00::1"),
	}
	simulatedTenants = []string{"ns:a", "ns:b", "red", "blue"}
)

// drawPolicy draws the owners of prefixes, including nobody and both tenants.
func drawPolicy(random *rand.Rand, prefixes bool) *tenants.Policy {
	policy := &tenants.Policy{Tenants: []tenants.Tenant{{Name: "red"}, {Name: "blue"}}}
	if random.IntN(3) == 0 {
		policy.Peerings = append(policy.Peerings, tenants.Peering{A: "red", B: "ns:a"})
	}
	if !prefixes {
		return policy
	}
	for _, text := range []string{"10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", "fd00::/64", "10.1.0.0/30"} {
		if random.IntN(2) == 0 {
			at := random.IntN(2)
			policy.Tenants[at].Prefixes = append(policy.Tenants[at].Prefixes, netip.MustParsePrefix(text))
		}
	}
	return policy
}

func newWorld(t testing.TB, seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, seed))
	newInstance = func() string { return fmt.Sprintf("%08x", random.Uint32()) }
	w := &world{
		t: t, random: random, now: time.Unix(1000, 0), store: map[string][]*tenants.Record{},
		quiet: []int{40, 120, 400}[seed%3], misuse: seed%4 == 3, pace: []int{8, 40, 120}[seed/3%3],
		weights: [][5]int{{4, 4, 4, 4, 1}, {1, 1, 8, 1, 0}, {1, 1, 1, 8, 0}, {1, 8, 1, 1, 2}, {8, 1, 1, 1, 0}}[seed/2%5], prefixes: seed%2 == 1, lastOf: map[netip.Addr]string{},
	}
	w.policies = []*tenants.Policy{drawPolicy(random, w.prefixes)}
	for i := range 3 + int(seed%2) {
		m := &machine{name: string(rune('k' + i)), on: true, online: true}
		m.reset()
		w.machines = append(w.machines, m)
	}
	return w
}

// reset drops what does not survive a power cut.
func (m *machine) reset() {
	m.pods, m.flows = map[netip.Addr]pod{}, plan.Tenants{}
	m.crash()
}

// crash drops the daemon's memory.
func (m *machine) crash() {
	m.up, m.ledger, m.planned, m.installed = false, nil, nil, 0
	m.publishing, m.published, m.reading = nil, false, nil
	m.asking = map[netip.Addr]tenants.Claim{}
}

func (w *world) tell(format string, arguments ...any) {
	w.story = append(w.story, fmt.Sprintf("%s ", w.now.Format("05.000"))+fmt.Sprintf(format, arguments...))
	if len(w.story) > 400 {
		w.story = w.story[1:]
	}
}

// latest returns the latest state of a record.
func (w *world) latest(id string) *tenants.Record {
	if states := w.store[id]; len(states) > 0 {
		return states[len(states)-1]
	}
	return nil
}

func (w *world) put(id string, record *tenants.Record) {
	if w.store[id] == nil {
		w.order = append(w.order, id)
	}
	w.store[id] = append(w.store[id], record)
}

// snapshot returns what the machine has received so far.
func (w *world) snapshot(m *machine) tenants.Snapshot {
	w.sequence++
	snapshot := tenants.Snapshot{Sequence: w.sequence, Records: map[string]*tenants.Record{}, Policy: w.policies[m.policy]}
	for id, states := range w.store {
		if at := m.cursor[id]; at > 0 && states[at-1] != nil {
			snapshot.Records[id] = states[at-1]
		}
	}
	return snapshot
}

// boot starts a machine's daemon, as package replica does.
func (w *world) boot(m *machine) {
	m.cursor, m.policy = map[string]int{}, w.random.IntN(len(w.policies))
	switch {
	case m.ownState != nil:
		var own Own
		var known Known
		mustUnmarshal(w.t, m.ownState, &own)
		if m.knownState != nil {
			mustUnmarshal(w.t, m.knownState, &known)
		}
		m.ledger = Restore(own, known, w.now)
	case !m.online:
		return
	default:
		m.ledger = New(m.name, w.now)
		for _, id := range w.order {
			if record := w.latest(id); record != nil && record.Node == m.name && !record.Leaving {
				m.ledger = Adopt(record, w.now)
			}
		}
	}
	m.up = true
	// The switch still has its flows. Running pods are claimed again, others are released.
	owners := []string{}
	for _, address := range slices.SortedFunc(maps.Keys(m.pods), netip.Addr.Compare) {
		owners = append(owners, m.pods[address].owner)
		claim := tenants.Claim{Tenant: m.pods[address].tenant, Owner: m.pods[address].owner, Addresses: []netip.Addr{address}}
		if m.ledger.Begin(claim, w.now) != nil {
			w.stop(m, address)
			continue
		}
		if m.ledger.Decide(claim, w.now) != nil {
			w.stop(m, address)
			m.asking[address] = claim
		}
	}
	for _, claim := range m.asking {
		owners = append(owners, claim.Owner)
	}
	m.ledger.Retain(owners, w.now)
	w.tell("%s boots as %s with %d pods", m.name, m.ledger.ID(), len(m.pods))
}

// stop ends a pod. Its packets may still be on their way.
func (w *world) stop(m *machine, address netip.Addr) {
	w.draining = append(w.draining, sender{address, m.pods[address].tenant, w.now.Add(Drain)})
	delete(m.pods, address)
}

func mustUnmarshal(t testing.TB, data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func mustMarshal(t testing.TB, value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// check checks that no node takes packets of another tenant's pod for its own tenant's.
func (w *world) check() {
	w.draining = slices.DeleteFunc(w.draining, func(s sender) bool { return !w.now.Before(s.until) })
	senders := slices.Clone(w.draining)
	for _, m := range w.machines {
		for address, pod := range m.pods {
			senders = append(senders, sender{address: address, tenant: pod.tenant})
		}
	}
	for _, m := range w.machines {
		w.checkDisjoint(m)
		if !m.on || len(m.pods) == 0 {
			continue
		}
		for _, s := range senders {
			for _, member := range m.flows.Members {
				if member.Prefix.Contains(s.address) && member.Tenant != s.tenant {
					w.fail("%s takes %s for %s's, which a pod of %s sends from", m.name, s.address, member.Tenant, s.tenant)
				}
			}
		}
	}
}

func (w *world) checkDisjoint(m *machine) {
	for i, member := range m.flows.Members {
		for _, other := range m.flows.Members[i+1:] {
			if member.Tenant != other.Tenant && member.Prefix.Overlaps(other.Prefix) {
				w.fail("%s has %v and %v", m.name, member, other)
			}
		}
	}
}

func (w *world) fail(format string, arguments ...any) {
	w.t.Fatalf("%s\n%s", strings.Join(w.story, "\n"), fmt.Sprintf(format, arguments...))
}
