package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// Learn takes a snapshot in. since is the own generation that was published before the snapshot began to be read, 0
// where nobody knows: such a one is not believed before the first that is, since it may be older than what this node
// knew before it was restarted.
func (ledger *Ledger) Learn(snapshot tenants.Snapshot, since int64, now time.Time) {
	if since == 0 && !ledger.current {
		ledger.learnPolicy(snapshot, now)
		ledger.refresh(now)
		return
	}
	if snapshot.Sequence >= ledger.sequence {
		ledger.sequence = snapshot.Sequence
		ledger.learnRecords(snapshot, since > 0, now)
		ledger.learnPolicy(snapshot, now)
	}
	if since > 0 && !ledger.evicted {
		ledger.current = true
		if len(ledger.Unexplained()) == 0 {
			for _, used := range ledger.uses {
				if used.since > ledger.checked && used.since <= since {
					ledger.unpublished++ // after a restart without the directory it is to be usable still
				}
			}
			ledger.checked, ledger.ready = max(ledger.checked, since), true
		}
	}
	ledger.refresh(now)
}

func (ledger *Ledger) learnRecords(snapshot tenants.Snapshot, fresh bool, now time.Time) {
	ledger.unreadable = snapshot.Unreadable
	for _, id := range sorted(snapshot.Records) {
		record := snapshot.Records[id]
		if id == ledger.ID() {
			// A newer one than was ever written here: two daemons go by one node's name.
			if record.Leaving || record.Revision > ledger.revision {
				ledger.Evict(now)
			}
			continue
		}
		old := ledger.records[id]
		if old != nil && (old.Leaving && !record.Leaving || record.Revision < old.Revision) {
			continue
		}
		if record.Leaving && (old == nil || !old.Leaving) {
			ledger.barriers[id] = ledger.touch(now.Add(soon))
		}
		if !ledger.announced[id] && !record.Leaving {
			ledger.want(now)
		}
		if old == nil || !slices.Equal(active(old), active(record)) {
			ledger.news[id] = record.Generation
		}
		ledger.records[id] = record
		delete(ledger.ghosts, id)
	}
	if ledger.unreadable[ledger.ID()] != "" {
		ledger.want(now) // written anew, it is readable again
	}
	if _, there := snapshot.Records[ledger.ID()]; !there && ledger.unreadable[ledger.ID()] == "" {
		if fresh {
			ledger.Evict(now)
		} else {
			ledger.want(now.Add(soon)) // the store then says whether it was taken away
		}
	}
	for _, id := range sorted(ledger.records) {
		record := ledger.records[id]
		if snapshot.Records[id] == nil && snapshot.Unreadable[id] == "" {
			ledger.vanished(id, record, now)
		}
	}
}

// active entries of a record: those that others let in.
func active(record *tenants.Record) []holding {
	entries := make([]holding, 0, len(record.Addresses))
	for _, entry := range record.Addresses {
		if !entry.Pending {
			entries = append(entries, holding{entry.Address, entry.Tenant})
		}
	}
	return entries
}

// vanished: a record is no longer there. Where everybody had let go of it that is its proper end. Otherwise somebody
// took it away by hand, and other nodes may still act by it: it stays as a ghost, which lets nothing in but holds its
// addresses until nobody says any more that they act by it.
func (ledger *Ledger) vanished(id string, record *tenants.Record, now time.Time) {
	delete(ledger.records, id)
	delete(ledger.barriers, id)
	delete(ledger.announced, id)
	delete(ledger.news, id)
	if record.Leaving && len(ledger.lacking(id, tenants.Gone, now)) == 0 {
		return
	}
	ledger.ghosts[id] = record
	ledger.barriers[id] = ledger.touch(now.Add(soon))
}

func (ledger *Ledger) learnPolicy(snapshot tenants.Snapshot, now time.Time) {
	ledger.fault = snapshot.PolicyFault
	if snapshot.Policy == nil || ledger.policy != nil && reflect.DeepEqual(*snapshot.Policy, *ledger.policy) {
		return
	}
	ledger.policy = snapshot.Policy
	ledger.rules = tenants.NewRules(*snapshot.Policy)
	ledger.planUses(now)
}

// Unexplained says why nobody can know what all others hold: a record that cannot be read, or one that a node still
// acts by and that this one has never seen. Then nothing new is proven.
func (ledger *Ledger) Unexplained() []string {
	var why []string
	for _, name := range sorted(ledger.unreadable) {
		why = append(why, fmt.Sprintf("record %.80q cannot be read: %s", name, ledger.unreadable[name]))
	}
	for _, record := range ledger.records {
		if record.Leaving {
			continue
		}
		for id, generation := range record.Seen {
			if generation != tenants.Gone && id != ledger.ID() && ledger.records[id] == nil && ledger.ghosts[id] == nil {
				why = append(why, fmt.Sprintf("node %s still acts by record %s, which was taken away", record.Node, id))
			}
		}
	}
	slices.Sort(why)
	return why
}

// covers: seen is at least that generation.
func covers(seen, generation int64) bool {
	return seen == tenants.Gone || generation != tenants.Gone && seen >= generation
}

// lacking lists the nodes that do not say that their flows are made from that generation of the record or a later one.
func (ledger *Ledger) lacking(id string, generation int64, now time.Time) []string {
	var nodes []string
	for _, record := range ledger.records {
		if seen, found := record.Seen[id]; !record.Leaving && !(found && covers(seen, generation)) {
			nodes = append(nodes, record.Node)
		}
	}
	if seen, found := ledger.seen[id]; !found || !covers(ledger.drained(id, seen, now), generation) {
		nodes = append(nodes, ledger.node)
	}
	slices.Sort(nodes)
	return nodes
}

// haunted lists the nodes that say that their flows are made from a record that has vanished.
func (ledger *Ledger) haunted(id string) []string {
	var nodes []string
	for _, record := range ledger.records {
		if seen, found := record.Seen[id]; found && !record.Leaving && seen != tenants.Gone {
			nodes = append(nodes, record.Node)
		}
	}
	if seen, found := ledger.seen[id]; found && seen != tenants.Gone {
		nodes = append(nodes, ledger.node)
	}
	slices.Sort(nodes)
	return nodes
}
