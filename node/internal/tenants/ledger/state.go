package ledger

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// Own is what has to be on disk before it is published: the own record, and what only this node needs to know of it.
type Own struct {
	Record *tenants.Record `json:"record"`
	// ByPrefix: addresses that the tenants' prefixes cover, which are not published one by one.
	ByPrefix []tenants.Address `json:"by_prefix,omitempty"`
	// Checked as in Known, when this was stored.
	Checked int64 `json:"checked"`
	// Unchecked prefixes of the record: nobody may act by them yet.
	Unchecked []tenants.Use `json:"unchecked,omitempty"`
	// Announced records: published as seen.
	Announced []string `json:"announced,omitempty"`
}

// Known is what has to be on disk before this node says that it has seen it: after a restart it must not act by less.
type Known struct {
	// ID of the record that this node had: what it knew counts for as long as the others know that record.
	ID string `json:"id"`
	// Checked: all that others had published when this generation of the own record was out is in here.
	Checked int64             `json:"checked"`
	Records []*tenants.Record `json:"records,omitempty"`
	Ghosts  []*tenants.Record `json:"ghosts,omitempty"`
	Policy  *tenants.Policy   `json:"policy,omitempty"`
	// First of the records that name an address for different tenants.
	First map[netip.Addr]string `json:"first,omitempty"`
}

// Own state around a record that Record gave.
func (l *Ledger) Own(record *tenants.Record) Own {
	own := Own{Record: record, Checked: l.checked, Announced: slices.Sorted(maps.Keys(l.announced))}
	for address, held := range l.claims {
		if held.byPrefix {
			own.ByPrefix = append(own.ByPrefix, tenants.Address{
				Address: address, Tenant: held.tenant, Rail: held.rail, Owner: held.owner, Pending: !held.active,
			})
		}
	}
	for entry, used := range l.uses {
		if used.since > l.checked {
			own.Unchecked = append(own.Unchecked, entry)
		}
	}
	slices.SortFunc(own.Unchecked, compareUses)
	slices.SortFunc(own.ByPrefix, func(a, b tenants.Address) int { return a.Address.Compare(b.Address) })
	return own
}

// Known state of now. What others have seen is left out: it only delays, and is heard again.
func (l *Ledger) Known() Known {
	known := Known{ID: l.ID(), Checked: l.checked, Policy: l.policy}
	for address := range l.contested {
		if id, seen := l.first[address]; seen {
			if known.First == nil {
				known.First = map[netip.Addr]string{}
			}
			known.First[address] = id
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.records)) {
		known.Records = append(known.Records, unseeing(l.records[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(l.ghosts)) {
		known.Ghosts = append(known.Ghosts, unseeing(l.ghosts[id]))
	}
	return known
}

func unseeing(record *tenants.Record) *tenants.Record {
	without := *record
	without.Seen = nil
	return &without
}

// covers: nothing newer was said to be seen. Otherwise going by it would be to go back.
func (k *Known) covers(own *tenants.Record) bool {
	stored := map[string]int64{own.ID(): own.Generation}
	for _, record := range slices.Concat(k.Records, k.Ghosts) {
		stored[record.ID()] = record.Generation
		if record.Leaving {
			stored[record.ID()] = tenants.Gone
		}
	}
	for id, generation := range own.Seen {
		if has, found := stored[id]; found && !covers(has, generation) {
			return false
		}
	}
	return true
}

// Restore the ledger of a node from its disk. known may be empty: then nothing is let in until it was read anew.
func Restore(own Own, known Known, now time.Time) *Ledger {
	ledger := New(own.Record.Node, now)
	ledger.adopt(own.Record, now)
	for entry, used := range ledger.uses {
		if !slices.Contains(own.Unchecked, entry) {
			used.since = 1 // checked, as far as what is known from then is still there
		}
	}
	for _, entry := range own.ByPrefix {
		ledger.claims[entry.Address] = restored(entry, true, 0)
	}
	if known.ID == ledger.ID() && known.Policy != nil && known.Checked >= own.Checked && known.covers(own.Record) {
		for _, record := range known.Records {
			ledger.records[record.ID()] = record
		}
		for _, ghost := range known.Ghosts {
			ledger.ghosts[ghost.ID()] = ghost
			ledger.barriers[ghost.ID()] = ledger.generation
		}
		ledger.first = known.First
		ledger.policy, ledger.rules = known.Policy, tenants.NewRules(*known.Policy)
		for _, id := range own.Announced {
			ledger.announced[id] = true
		}
		ledger.ready, ledger.checked = true, known.Checked
	}
	ledger.planUses(now)
	ledger.refresh(now)
	return ledger
}

// Adopt a record that this node published before it lost its state.
func Adopt(record *tenants.Record, now time.Time) *Ledger {
	ledger := New(record.Node, now)
	ledger.adopt(record, now)
	ledger.refresh(now)
	return ledger
}

func (l *Ledger) adopt(record *tenants.Record, now time.Time) {
	l.instance = record.Instance
	l.generation, l.revision = record.Generation+1, record.Revision
	l.seen = maps.Clone(record.Seen)
	if l.seen == nil {
		l.seen = map[string]int64{}
	}
	for _, entry := range record.Addresses {
		l.claims[entry.Address] = restored(entry, false, record.Generation)
	}
	for _, entry := range record.Prefixes {
		// Published, and asked for by nobody until the policy says so.
		l.uses[entry] = &use{since: record.Generation, busyUntil: now.Add(Drain)}
	}
	for _, entry := range record.Released {
		l.released[holding{entry.Address, entry.Tenant}] = &released{generation: entry.Generation, at: now}
	}
	l.want(now)
}

// restored claim: its pod may have run, also where the last record that was stored does not say so yet.
func restored(entry tenants.Address, byPrefix bool, generation int64) *claim {
	return &claim{
		tenant: entry.Tenant, rail: entry.Rail, owner: entry.Owner, byPrefix: byPrefix,
		active: !entry.Pending, proven: true, orphan: entry.Pending, since: generation, activeAt: generation,
	}
}
