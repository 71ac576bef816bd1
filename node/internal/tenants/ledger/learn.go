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
func (l *Ledger) Learn(snapshot tenants.Snapshot, since int64, now time.Time) {
	if since == 0 && !l.current {
		l.learnPolicy(snapshot, now)
		l.refresh(now)
		return
	}
	if snapshot.Sequence >= l.sequence {
		l.sequence = snapshot.Sequence
		l.learnRecords(snapshot, since > 0, now)
		l.learnPolicy(snapshot, now)
	}
	if since > 0 && !l.evicted {
		l.current = true
		if len(l.Unexplained()) == 0 {
			for _, used := range l.uses {
				if used.since > l.checked && used.since <= since {
					l.unpublished++ // after a restart without the directory it is to be usable still
				}
			}
			l.checked, l.ready = max(l.checked, since), true
		}
	}
	l.refresh(now)
}

func (l *Ledger) learnRecords(snapshot tenants.Snapshot, fresh bool, now time.Time) {
	l.unreadable = snapshot.Unreadable
	for _, id := range sorted(snapshot.Records) {
		record := snapshot.Records[id]
		if id == l.ID() {
			// A newer one than was ever written here: two daemons go by one node's name.
			if record.Leaving || record.Revision > l.revision {
				l.Evict(now)
			}
			continue
		}
		old := l.records[id]
		if old != nil && (old.Leaving && !record.Leaving || record.Revision < old.Revision) {
			continue
		}
		if record.Leaving && (old == nil || !old.Leaving) {
			l.barriers[id] = l.touch(now.Add(soon))
		}
		if !l.announced[id] && !record.Leaving {
			l.want(now)
		}
		if old == nil || !slices.Equal(active(old), active(record)) {
			l.news[id] = record.Generation
		}
		l.records[id] = record
		delete(l.ghosts, id)
	}
	_, spoilt := l.unreadable[l.ID()]
	if spoilt {
		l.want(now) // written anew, it is readable again
	}
	if _, there := snapshot.Records[l.ID()]; !there && !spoilt {
		if fresh {
			l.Evict(now)
		} else {
			l.want(now.Add(soon)) // the store then says whether it was taken away
		}
	}
	for _, id := range sorted(l.records) {
		record := l.records[id]
		if _, spoilt := snapshot.Unreadable[id]; snapshot.Records[id] == nil && !spoilt {
			l.vanished(id, record, now)
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
func (l *Ledger) vanished(id string, record *tenants.Record, now time.Time) {
	delete(l.records, id)
	delete(l.barriers, id)
	delete(l.announced, id)
	delete(l.news, id)
	if record.Leaving && len(l.lacking(id, tenants.Gone, now)) == 0 {
		return
	}
	l.ghosts[id] = record
	l.barriers[id] = l.touch(now.Add(soon))
}

func (l *Ledger) learnPolicy(snapshot tenants.Snapshot, now time.Time) {
	l.fault = snapshot.PolicyFault
	if snapshot.Policy == nil || l.policy != nil && reflect.DeepEqual(*snapshot.Policy, *l.policy) {
		return
	}
	l.policy = snapshot.Policy
	l.rules = tenants.NewRules(*snapshot.Policy)
	l.planUses(now)
}

// Unexplained says why nobody can know what all others hold: a record that is no text at all and was never seen
// otherwise, or one that a node still acts by and that this one has never seen. Then nothing new is proven.
func (l *Ledger) Unexplained() []string {
	var reasons []string
	for _, name := range sorted(l.unreadable) {
		if l.unreadable[name].Unknown && l.records[name] == nil {
			reasons = append(reasons, l.spoilt(name))
		}
	}
	for _, record := range l.records {
		if record.Leaving {
			continue
		}
		for id, generation := range record.Seen {
			if generation != tenants.Gone && id != l.ID() && l.records[id] == nil && l.ghosts[id] == nil {
				reasons = append(reasons, fmt.Sprintf("node %s still acts by record %s, which was taken away", record.Node, id))
			}
		}
	}
	slices.Sort(reasons)
	return reasons
}

// quarantined records cannot be read; others are served all the same. One that could be read before stands for what it
// said then. Whatever it names is nobody else's, and it has confirmed nothing since.
func (l *Ledger) quarantined() []string {
	var reasons []string
	for _, name := range sorted(l.unreadable) {
		if !l.unreadable[name].Unknown || l.records[name] != nil {
			reasons = append(reasons, l.spoilt(name))
		}
	}
	return reasons
}

func (l *Ledger) spoilt(name string) string {
	return fmt.Sprintf("record %.80q cannot be read: %s; its node writes it anew, or see who else did and delete it", name,
		l.unreadable[name].Why)
}

// strangers are the nodes of records that could never be read: what they have seen is not known.
func (l *Ledger) strangers() []string {
	var nodes []string
	for name := range l.unreadable {
		if name != l.ID() && l.records[name] == nil {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// covers: seen is at least that generation.
func covers(seen, generation int64) bool {
	return seen == tenants.Gone || generation != tenants.Gone && seen >= generation
}

// lacking lists the nodes that do not say that their flows are made from that generation of the record or a later one.
func (l *Ledger) lacking(id string, generation int64, now time.Time) []string {
	var nodes []string
	for _, record := range l.records {
		if seen, found := record.Seen[id]; !record.Leaving && (!found || !covers(seen, generation)) {
			nodes = append(nodes, record.Node)
		}
	}
	if seen, found := l.seen[id]; !found || !covers(l.drained(id, seen, now), generation) {
		nodes = append(nodes, l.node)
	}
	nodes = append(nodes, l.strangers()...)
	slices.Sort(nodes)
	return nodes
}

// haunted lists the nodes that say that their flows are made from a record that has vanished.
func (l *Ledger) haunted(id string) []string {
	var nodes []string
	for _, record := range l.records {
		if seen, found := record.Seen[id]; found && !record.Leaving && seen != tenants.Gone {
			nodes = append(nodes, record.Node)
		}
	}
	if seen, found := l.seen[id]; found && seen != tenants.Gone {
		nodes = append(nodes, l.node)
	}
	slices.Sort(nodes)
	return nodes
}
