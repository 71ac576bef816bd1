package ledger

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// Own must be on disk before it is published: this node's record, and the state that only this node needs.
type Own struct {
	Record *tenants.Record `json:"record"`
	// ByPrefix lists addresses that the tenants' prefixes cover, which are not published by themselves.
	ByPrefix []tenants.Address `json:"by_prefix,omitempty"`
	// Checked is as in Known at the time of storing.
	Checked int64 `json:"checked"`
	// Unchecked lists prefixes of the record that nobody may use yet.
	Unchecked []tenants.Use `json:"unchecked,omitempty"`
	// Announced lists records that were published as seen.
	Announced []string `json:"announced,omitempty"`
}

// Known must be on disk before this node publishes that it has seen it: after a restart the node must not act on less.
type Known struct {
	// ID is the ID of this node's record. The knowledge is valid while the others know that record.
	ID string `json:"id"`
	// Checked is the generation of this node's record at whose publication all that others had published is included.
	Checked int64             `json:"checked"`
	Records []*tenants.Record `json:"records,omitempty"`
	Ghosts  []*tenants.Record `json:"ghosts,omitempty"`
	Policy  *tenants.Policy   `json:"policy,omitempty"`
	// First maps addresses that records name for different tenants to the first of these records.
	First map[netip.Addr]string `json:"first,omitempty"`
}

// Own returns the state to store with a record of Record.
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

// Known returns the current knowledge without what others have seen, which only delays and is received again.
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
		known.Records = append(known.Records, withoutSeen(l.records[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(l.ghosts)) {
		known.Ghosts = append(known.Ghosts, withoutSeen(l.ghosts[id]))
	}
	return known
}

func withoutSeen(record *tenants.Record) *tenants.Record {
	without := *record
	without.Seen = nil
	return &without
}

// covers reports whether nothing newer was published as seen. Otherwise using the knowledge would be a step back.
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

// Restore returns the ledger from a node's disk. known may be empty; then nothing is admitted until it was read again.
func Restore(own Own, known Known, now time.Time) *Ledger {
	ledger := New(own.Record.Node, now)
	ledger.adopt(own.Record, now)
	for entry, used := range ledger.uses {
		if !slices.Contains(own.Unchecked, entry) {
			used.since = 1 // checked, as far as the knowledge from then still exists
		}
	}
	for _, entry := range own.ByPrefix {
		ledger.claims[entry.Address] = restoredClaim(entry, true, 0)
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

// Adopt returns a ledger from the record that this node published before it lost its state.
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
		l.claims[entry.Address] = restoredClaim(entry, false, record.Generation)
	}
	for _, entry := range record.Prefixes {
		// The prefix is published, but not requested until the policy requires it.
		l.uses[entry] = &use{since: record.Generation, busyUntil: now.Add(Drain)}
	}
	for _, entry := range record.Released {
		l.released[holding{entry.Address, entry.Tenant}] = &released{generation: entry.Generation, at: now}
	}
	l.want(now)
}

// restoredClaim returns a claim whose pod may have run, even if the last stored record does not say so.
func restoredClaim(entry tenants.Address, byPrefix bool, generation int64) *claim {
	return &claim{
		tenant: entry.Tenant, rail: entry.Rail, owner: entry.Owner, byPrefix: byPrefix,
		active: !entry.Pending, proven: true, orphan: entry.Pending, since: generation, activeAt: generation,
	}
}
