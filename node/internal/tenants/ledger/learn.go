package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// Learn takes in a snapshot. since is this node's generation that was published before the snapshot was read, or 0 if
// unknown. A snapshot with 0 is ignored until the first with a known generation, because it may be older than what this
// node knew before its restart.
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
					l.unpublished++ // the use must remain usable after a restart without the directory
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
			// The record is newer than any that was written here: two daemons use the same node name.
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
		l.want(now) // writing it again makes it readable
	}
	if _, there := snapshot.Records[l.ID()]; !there && !spoilt {
		if fresh {
			l.Evict(now)
		} else {
			l.want(now.Add(soon)) // the store then reports whether it was removed
		}
	}
	for _, id := range sorted(l.records) {
		record := l.records[id]
		if _, spoilt := snapshot.Unreadable[id]; snapshot.Records[id] == nil && !spoilt {
			l.handleVanished(id, record, now)
		}
	}
}

// active returns the entries of a record that others admit.
func active(record *tenants.Record) []holding {
	entries := make([]holding, 0, len(record.Addresses))
	for _, entry := range record.Addresses {
		if !entry.Pending {
			entries = append(entries, holding{entry.Address, entry.Tenant})
		}
	}
	return entries
}

// handleVanished handles a record that is gone. If all nodes had stopped using it, that is its regular end. Otherwise
// it was deleted by hand, and other nodes may still use it: it remains as a ghost, which admits nothing but blocks its
// addresses until no node uses it.
func (l *Ledger) handleVanished(id string, record *tenants.Record, now time.Time) {
	delete(l.records, id)
	delete(l.barriers, id)
	delete(l.announced, id)
	delete(l.news, id)
	if record.Leaving && len(l.lackingNodes(id, tenants.Gone, now)) == 0 {
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

// Unexplained returns the reasons why this node cannot know what all others hold: a record that is not JSON and was
// never readable, or a record that a node still uses and this one has never seen. Nothing new is proven meanwhile.
func (l *Ledger) Unexplained() []string {
	var reasons []string
	for _, name := range sorted(l.unreadable) {
		if l.unreadable[name].Unknown && l.records[name] == nil {
			reasons = append(reasons, l.describeUnreadable(name))
		}
	}
	for _, record := range l.records {
		if record.Leaving {
			continue
		}
		for id, generation := range record.Seen {
			if generation != tenants.Gone && id != l.ID() && l.records[id] == nil && l.ghosts[id] == nil {
				reasons = append(reasons, fmt.Sprintf("node %s still uses record %s, which was removed", record.Node, id))
			}
		}
	}
	slices.Sort(reasons)
	return reasons
}

// quarantinedRecords returns the unreadable records that do not affect others. A record that was readable before counts
// with its old content. Every address in the record is blocked, and it confirms nothing.
func (l *Ledger) quarantinedRecords() []string {
	var reasons []string
	for _, name := range sorted(l.unreadable) {
		if !l.unreadable[name].Unknown || l.records[name] != nil {
			reasons = append(reasons, l.describeUnreadable(name))
		}
	}
	return reasons
}

func (l *Ledger) describeUnreadable(name string) string {
	return fmt.Sprintf("record %.80q cannot be parsed: %s; wait until its node writes it again, or find out who wrote it and delete it", name,
		l.unreadable[name].Reason)
}

// strangers returns the nodes of records that were never readable. What they have seen is unknown.
func (l *Ledger) strangers() []string {
	var nodes []string
	for name := range l.unreadable {
		if name != l.ID() && l.records[name] == nil {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// covers reports whether seen is at least the generation.
func covers(seen, generation int64) bool {
	return seen == tenants.Gone || generation != tenants.Gone && seen >= generation
}

// lackingNodes returns the nodes whose flows do not yet implement that generation of the record or a later one.
func (l *Ledger) lackingNodes(id string, generation int64, now time.Time) []string {
	var nodes []string
	for _, record := range l.records {
		if seen, found := record.Seen[id]; !record.Leaving && (!found || !covers(seen, generation)) {
			nodes = append(nodes, record.Node)
		}
	}
	if seen, found := l.seen[id]; !found || !covers(l.drainedGeneration(id, seen, now), generation) {
		nodes = append(nodes, l.node)
	}
	nodes = append(nodes, l.strangers()...)
	slices.Sort(nodes)
	return nodes
}

// nodesUsingVanished returns the nodes whose flows still implement a record that has vanished.
func (l *Ledger) nodesUsingVanished(id string) []string {
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
