package ledger

import (
	"time"

	"railwright/node/internal/tenants"
)

// Expire drops state that is no longer needed. It returns when to call it again, or zero if only a change makes that
// necessary.
func (l *Ledger) Expire(now time.Time) time.Time {
	next := l.expireReleased(now)
	next = earliest(next, l.expireUses(now))
	for id := range l.ghosts {
		if len(l.nodesUsingVanished(id)) == 0 && l.checked >= l.barriers[id] {
			delete(l.ghosts, id)
			delete(l.barriers, id)
		}
	}
	l.refresh(now)
	return next
}

// expireReleased drops releases that every node has seen. A read that began after the publication of the release
// returns every node that may have read the earlier state.
func (l *Ledger) expireReleased(now time.Time) (next time.Time) {
	for entry, let := range l.released {
		if wait := let.at.Add(Drain); now.Before(wait) {
			next = earliest(next, wait)
			continue
		}
		if !let.drained {
			let.drained = true // from now on this node, too, publishes that it has seen the release
			l.want(now)
		}
		if l.checked >= let.generation && len(l.lackingNodes(l.ID(), let.generation, now)) == 0 {
			delete(l.released, entry)
			l.touch(now.Add(later))
		}
	}
	return next
}

func (l *Ledger) expireUses(now time.Time) (next time.Time) {
	for entry, used := range l.uses {
		if used.want || used.leftAt == 0 || l.views.confirmed < used.leftAt || l.isOccupied(entry) {
			continue
		}
		if now.Before(used.busyUntil) {
			next = earliest(next, used.busyUntil)
			continue
		}
		delete(l.uses, entry)
		l.touch(now.Add(soon))
	}
	return next
}

// isOccupied reports whether a pod here has an address that only this use publishes.
func (l *Ledger) isOccupied(entry tenants.Use) bool {
	for address, held := range l.claims {
		if held.byPrefix && held.tenant == entry.Tenant && entry.Prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Departed returns the leaving records that no node uses any more. They can be removed.
func (l *Ledger) Departed(now time.Time) []*tenants.Record {
	var departed []*tenants.Record
	for id, record := range l.records {
		if record.Leaving && l.checked >= l.barriers[id] && len(l.lackingNodes(id, tenants.Gone, now)) == 0 {
			departed = append(departed, record)
		}
	}
	return departed
}

// seenNow returns the generations to publish as seen: those confirmed, except that this node has not yet seen the
// release of an address whose pod may have packets on their way. 0 means that the node is about to use the record.
func (l *Ledger) seenNow(now time.Time) map[string]int64 {
	seen := make(map[string]int64, len(l.seen))
	for id, record := range l.records {
		if !record.Leaving {
			seen[id] = 0
		}
	}
	for id, generation := range l.seen {
		seen[id] = l.drainedGeneration(id, generation, now)
	}
	return seen
}

func (l *Ledger) drainedGeneration(id string, generation int64, now time.Time) int64 {
	if id != l.ID() {
		return generation
	}
	for _, let := range l.released {
		if now.Before(let.at.Add(Drain)) {
			generation = min(generation, let.generation-1)
		}
	}
	return generation
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
