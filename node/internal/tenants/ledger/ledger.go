// Package ledger is a node's ledger of addresses: its knowledge of the others' records, its own claims, and the state
// that its flows implement. It is pure: no I/O, no clock, no goroutine; the caller locks it. The documentation of
// package tenants describes the protocol and why it is safe; simulate_test.go tests it with random orders of events.
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

// Drain is how long a packet of a deleted pod may still be on its way. No switch holds a packet longer.
const Drain = time.Second

// Delays of publication: soon for what another node may wait for, later for cleanup. The rest is published at once.
const (
	soon  = 500 * time.Millisecond
	later = time.Minute
)

// newInstance is replaced by tests, which must be repeatable.
var newInstance = tenants.NewInstance

// Ledger is the ledger of a node.
type Ledger struct {
	node     string
	instance string
	// generation and revision are those of this node's record if it were published now.
	generation, revision int64
	// acked is the published generation. checked is the generation at whose publication this node knows all that others
	// had published.
	acked, checked int64
	// current means that this process has read what others publish. ready means that the others know this node, now or
	// before a restart. evicted means that they no longer do.
	current, ready, evicted bool

	claims   map[netip.Addr]*claim
	released map[holding]*released
	uses     map[tenants.Use]*use
	seen     map[string]int64
	// announced holds the records that this node has published it may use. It uses no other.
	announced map[string]bool

	sequence uint64
	records  map[string]*tenants.Record
	ghosts   map[string]*tenants.Record
	barriers map[string]int64
	// news maps records to the generation in which their active entries last changed.
	news       map[string]int64
	unreadable map[string]tenants.Unreadable

	// first maps addresses to the record that they are admitted by. contested holds the addresses that records name for
	// different tenants.
	first     map[netip.Addr]string
	contested map[netip.Addr][]holder

	policy *tenants.Policy
	// pods are the pods' prefixes of this node's rails, which limit those of tenants. nil means no limit.
	pods   []netip.Prefix
	rules  *tenants.Rules
	fault  string
	usable map[string][]netip.Prefix

	views views
	due   time.Time
	// unpublished counts changes that must be stored although they are not published.
	unpublished uint64
}

// holding is an address of a tenant.
type holding struct {
	address netip.Addr
	tenant  string
}

type claim struct {
	tenant, rail, owner string
	// byPrefix means that the tenant's prefixes cover it, so it is not published by itself.
	byPrefix bool
	active   bool
	// proven means that it was once granted, so its pod may have run.
	proven bool
	// orphan means that it was restored and no caller waits for it.
	orphan bool
	// kept means that it is reserved although its pod is gone.
	kept bool
	// since is the generation that first published it; activeAt the one that published it as active.
	since, activeAt int64
}

type released struct {
	generation int64
	at         time.Time
	drained    bool
}

// New returns the ledger of a node that has never published. It publishes its record first.
func New(node string, now time.Time) *Ledger {
	return &Ledger{
		node: node, instance: newInstance(), generation: 1,
		claims: map[netip.Addr]*claim{}, released: map[holding]*released{}, uses: map[tenants.Use]*use{},
		seen: map[string]int64{}, announced: map[string]bool{}, records: map[string]*tenants.Record{}, ghosts: map[string]*tenants.Record{},
		barriers: map[string]int64{}, news: map[string]int64{}, views: newViews(), due: now,
	}
}

// Bound limits the tenants' prefixes to those that pods can have.
func (l *Ledger) Bound(pods []netip.Prefix, now time.Time) {
	l.pods = pods
	l.refresh(now)
}

// ID returns the ID of this node's record.
func (l *Ledger) ID() string { return l.node + "." + l.instance }

// touch starts the next generation of this node's record, to be published by the given time.
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

// Due returns when to publish this node's record, or zero if it is published.
func (l *Ledger) Due() time.Time { return l.due }

// Record returns the record to publish now and uses up its Revision. The publication counts as done; Failed must be
// called if it fails.
func (l *Ledger) Record(now time.Time) *tenants.Record {
	l.revision++
	l.due = time.Time{}
	return l.Draft(now)
}

// Draft returns this node's record for its own disk only.
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

// Acked records that the store has the record.
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

// Failed records that the store may not have the record, which makes it due again.
func (l *Ledger) Failed(now time.Time) { l.want(now) }

// Published returns the generation that others can read.
func (l *Ledger) Published() int64 { return l.acked }

// NeedsReading reports whether something waits for a read that begins after the publication of this node's record.
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

// Unpublished counts the changes that no publication stores. The caller must store them before it acts on them.
func (l *Ledger) Unpublished() uint64 { return l.unpublished }

// Current reports whether this process has read what others publish.
func (l *Ledger) Current() bool { return l.current }

// Ruled reports whether the policy is known.
func (l *Ledger) Ruled() bool { return l.rules != nil }

// TenantOf returns the tenant of a namespace. known is false if no policy was read yet.
func (l *Ledger) TenantOf(namespace string) (tenant string, err error, known bool) {
	if l.rules == nil && l.fault != "" {
		return "", fmt.Errorf("%w: read tenants: %s", tenants.ErrUnreachable, l.fault), true
	}
	if l.rules == nil {
		return "", nil, false
	}
	tenant, err = l.rules.TenantOf(namespace)
	return tenant, err, true
}

// Evicted reports whether this node's record is gone. Register then starts another one.
func (l *Ledger) Evicted() bool { return l.evicted }

// Evict records that the store no longer has this node's record, or that the record is leaving. Nothing is admitted
// from now on.
func (l *Ledger) Evict(now time.Time) {
	l.evicted, l.ready = true, false
	l.refresh(now)
}

// Register starts another record after an eviction. All claims must be proven again.
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

// sorted returns the keys in order, so that equal events have equal results.
func sorted[K cmp.Ordered, V any](entries map[K]V) []K { return slices.Sorted(maps.Keys(entries)) }

func sortedAddresses[V any](entries map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(entries), netip.Addr.Compare)
}

// Nodes returns the other nodes with a record, sorted.
func (l *Ledger) Nodes() []string {
	nodes := map[string]bool{}
	for _, record := range l.records {
		if !record.Leaving {
			nodes[record.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
