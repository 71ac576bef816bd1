// Package ledger is one node's book of who holds which address: what it knows of the others, what it claims itself, and
// what its flows are made from. Pure: no I/O, no clock, no goroutine; whoever drives it locks. Package tenants' doc.go
// has the rules in words and why they are enough; simulate_test.go tries them in any order of events.
package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// Drain is how long a packet that a pod sent may still be on its way when the pod is gone: no switch holds one longer.
const Drain = time.Second

// When something is to be published: at once what somebody waits for, later what only cleans up.
const (
	soon  = 500 * time.Millisecond
	later = time.Minute
)

// newInstance is replaced by tests, which have to be repeatable.
var newInstance = tenants.NewInstance

// Ledger of one node.
type Ledger struct {
	node     string
	instance string
	// generation and revision of the own record as it would be published now.
	generation, revision int64
	// acked generation is published; checked: all that others had published until then is known.
	acked, checked int64
	// current: this process has read what others publish. ready: as a node that they know, now or before a restart;
	// evicted: they no longer do.
	current, ready, evicted bool

	claims   map[netip.Addr]*claim
	released map[holding]*released
	uses     map[tenants.Use]*use
	seen     map[string]int64
	// announced: records that this node has said it may act by. It acts by no other.
	announced map[string]bool

	sequence uint64
	records  map[string]*tenants.Record
	ghosts   map[string]*tenants.Record
	barriers map[string]int64
	// news: the generation of each record in which what it lets in last changed.
	news       map[string]int64
	unreadable map[string]tenants.Unreadable

	// first: the record that an address is let in by; contested: those that name it for different tenants.
	first     map[netip.Addr]string
	contested map[netip.Addr][]holder

	policy *tenants.Policy
	// pods' prefixes of this node's rails, which bound those of tenants; nil: they are not bounded.
	pods   []netip.Prefix
	rules  *tenants.Rules
	fault  string
	usable map[string][]netip.Prefix

	views views
	due   time.Time
	// unpublished changes so far, which have to be stored all the same.
	unpublished uint64
}

// holding is an address in the hands of a tenant.
type holding struct {
	address netip.Addr
	tenant  string
}

type claim struct {
	tenant, rail, owner string
	// byPrefix: the tenant's prefixes cover it, it is not published by itself.
	byPrefix bool
	active   bool
	// proven at some time: its pod may have run.
	proven bool
	// orphan: restored, and nobody waits for it.
	orphan bool
	// kept for this node though its pod is gone.
	kept bool
	// since: the generation that first published it; activeAt: the one that said it is active.
	since, activeAt int64
}

type released struct {
	generation int64
	at         time.Time
	drained    bool
}

// New ledger of a node that has never published: it makes itself known first.
func New(node string, now time.Time) *Ledger {
	return &Ledger{
		node: node, instance: newInstance(), generation: 1,
		claims: map[netip.Addr]*claim{}, released: map[holding]*released{}, uses: map[tenants.Use]*use{},
		seen: map[string]int64{}, announced: map[string]bool{}, records: map[string]*tenants.Record{}, ghosts: map[string]*tenants.Record{},
		barriers: map[string]int64{}, news: map[string]int64{}, views: newViews(), due: now,
	}
}

// Bound the tenants' prefixes by those that pods may have their addresses in.
func (l *Ledger) Bound(pods []netip.Prefix, now time.Time) {
	l.pods = pods
	l.refresh(now)
}

// ID of the own record.
func (l *Ledger) ID() string { return l.node + "." + l.instance }

// touch starts the next generation of the own record and says by when it is to be published.
func (l *Ledger) touch(by time.Time) int64 {
	l.generation++
	l.want(by)
	return l.generation
}

func (l *Ledger) want(by time.Time) {
	if l.due.IsZero() || by.Before(l.due) {
		l.due = by
	}
}

// Due says by when the own record wants to be published; zero: it is.
func (l *Ledger) Due() time.Time { return l.due }

// Record to publish now; its Revision is used up. What was due is taken as done: a failure has to be told by Failed.
func (l *Ledger) Record(now time.Time) *tenants.Record {
	l.revision++
	l.due = time.Time{}
	return l.Draft(now)
}

// Draft of the own record, to be stored on this node's disk alone.
func (l *Ledger) Draft(now time.Time) *tenants.Record {
	record := &tenants.Record{
		Node: l.node, Instance: l.instance, Generation: l.generation, Revision: l.revision,
		Seen: l.seenNow(now),
	}
	for address, held := range l.claims {
		if !held.byPrefix {
			record.Addresses = append(record.Addresses, tenants.Address{
				Address: address, Tenant: held.tenant, Rail: held.rail, Owner: held.owner, Pending: !held.active,
			})
		}
	}
	for entry := range l.uses {
		record.Prefixes = append(record.Prefixes, entry)
	}
	for entry, let := range l.released {
		record.Released = append(record.Released,
			tenants.Released{Address: entry.address, Tenant: entry.tenant, Generation: let.generation})
	}
	record.Sort()
	return record
}

// Acked says that the store has the record.
func (l *Ledger) Acked(record *tenants.Record, now time.Time) {
	if record.Instance != l.instance {
		return
	}
	l.acked = max(l.acked, record.Generation)
	for id := range record.Seen {
		l.announced[id] = true
	}
	l.refresh(now)
}

// Failed says that the store may not have the record; it is due again.
func (l *Ledger) Failed(now time.Time) { l.want(now) }

// Published is the generation that others can read.
func (l *Ledger) Published() int64 { return l.acked }

// NeedsReading says that something waits for a reading that began after the own record was published.
func (l *Ledger) NeedsReading() bool {
	return !l.evicted && l.acked > 0 && l.checked < l.acked && l.waiting()
}

func (l *Ledger) waiting() bool {
	if !l.current || !l.ready || len(l.barriers) > 0 {
		return true
	}
	for _, held := range l.claims {
		if (!held.active || held.kept) && held.since > l.checked {
			return true
		}
	}
	for _, used := range l.uses {
		if used.since > l.checked {
			return true
		}
	}
	for _, let := range l.released {
		if let.generation > l.checked {
			return true
		}
	}
	return false
}

// Unpublished counts the changes that no publication will store: whoever acts by one has to store it.
func (l *Ledger) Unpublished() uint64 { return l.unpublished }

// Current says whether this process has read what others publish.
func (l *Ledger) Current() bool { return l.current }

// Ruled says whether the policy is known.
func (l *Ledger) Ruled() bool { return l.rules != nil }

// TenantOf a namespace; not known: no policy was read yet.
func (l *Ledger) TenantOf(namespace string) (tenant string, err error, known bool) {
	if l.rules == nil && l.fault != "" {
		return "", fmt.Errorf("%w: the tenants cannot be read: %s", tenants.ErrUnreachable, l.fault), true
	}
	if l.rules == nil {
		return "", nil, false
	}
	tenant, err = l.rules.TenantOf(namespace)
	return tenant, err, true
}

// Evicted says that the own record is gone: Register starts another one.
func (l *Ledger) Evicted() bool { return l.evicted }

// Evict says that the store has the own record no more, or that it is leaving. From now on nothing is let in.
func (l *Ledger) Evict(now time.Time) {
	l.evicted, l.ready = true, false
	l.refresh(now)
}

// Register starts another record after the own one was taken away: everything held has to be proven anew.
func (l *Ledger) Register(now time.Time) {
	l.instance = newInstance()
	l.generation, l.revision, l.acked, l.checked = 1, 0, 0, 0
	l.evicted, l.ready, l.current = false, false, false
	for _, held := range l.claims {
		held.active, held.orphan, held.since, held.activeAt = false, true, 1, 0
	}
	for _, let := range l.released {
		let.generation = 1
	}
	for _, used := range l.uses {
		used.since = 1
	}
	for id := range l.barriers {
		l.barriers[id] = 1
	}
	clear(l.announced)
	l.views.forget()
	l.want(now)
	l.refresh(now)
}

// sorted keys, so that the same events have the same outcome.
func sorted[K cmp.Ordered, V any](entries map[K]V) []K { return slices.Sorted(maps.Keys(entries)) }

func sortedAddresses[V any](entries map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(entries), netip.Addr.Compare)
}

// Nodes that have a record, sorted; not this one.
func (l *Ledger) Nodes() []string {
	nodes := map[string]bool{}
	for _, record := range l.records {
		if !record.Leaving {
			nodes[record.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
