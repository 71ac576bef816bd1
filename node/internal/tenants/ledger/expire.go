package ledger

import (
	"time"

	"railwright/node/internal/tenants"
)

// Expire drops what nobody needs any more, and says when to look again; zero: when something changes.
func (ledger *Ledger) Expire(now time.Time) time.Time {
	next := ledger.expireReleased(now)
	next = earliest(next, ledger.expireUses(now))
	for id := range ledger.ghosts {
		if len(ledger.haunted(id)) == 0 && ledger.checked >= ledger.barriers[id] {
			delete(ledger.ghosts, id)
			delete(ledger.barriers, id)
		}
	}
	ledger.refresh(now)
	return next
}

// expireReleased drops what every node has let go of. Every node: a reading that began after the release was published
// finds all that may ever have read what was there before.
func (ledger *Ledger) expireReleased(now time.Time) (next time.Time) {
	for entry, let := range ledger.released {
		if wait := let.at.Add(Drain); now.Before(wait) {
			next = earliest(next, wait)
			continue
		}
		if !let.drained {
			let.drained = true // from now on this node says that it has let go, too
			ledger.want(now)
		}
		if ledger.checked >= let.generation && len(ledger.lacking(ledger.ID(), let.generation, now)) == 0 {
			delete(ledger.released, entry)
			ledger.touch(now.Add(later))
		}
	}
	return next
}

func (ledger *Ledger) expireUses(now time.Time) (next time.Time) {
	for entry, used := range ledger.uses {
		if used.wanted || used.leftAt == 0 || ledger.views.confirmed < used.leftAt || ledger.occupied(entry) {
			continue
		}
		if now.Before(used.busyUntil) {
			next = earliest(next, used.busyUntil)
			continue
		}
		delete(ledger.uses, entry)
		ledger.touch(now.Add(soon))
	}
	return next
}

// occupied: a pod here has an address that only this use publishes.
func (ledger *Ledger) occupied(entry tenants.Use) bool {
	for address, held := range ledger.claims {
		if held.byPrefix && held.tenant == entry.Tenant && entry.Prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Departed lists the leaving records that no node acts by any more: they can be removed.
func (ledger *Ledger) Departed(now time.Time) []*tenants.Record {
	var departed []*tenants.Record
	for id, record := range ledger.records {
		if record.Leaving && ledger.checked >= ledger.barriers[id] && len(ledger.lacking(id, tenants.Gone, now)) == 0 {
			departed = append(departed, record)
		}
	}
	return departed
}

// seenNow is what is published as seen: what was confirmed, but not yet that this node has let go of an address whose
// pod may have sent packets that are still on their way. 0: it is about to act by that record.
func (ledger *Ledger) seenNow(now time.Time) map[string]int64 {
	seen := make(map[string]int64, len(ledger.seen))
	for id, record := range ledger.records {
		if !record.Leaving {
			seen[id] = 0
		}
	}
	for id, generation := range ledger.seen {
		seen[id] = ledger.drained(id, generation, now)
	}
	return seen
}

func (ledger *Ledger) drained(id string, generation int64, now time.Time) int64 {
	if id != ledger.ID() {
		return generation
	}
	for _, let := range ledger.released {
		if now.Before(let.at.Add(Drain)) {
			generation = min(generation, let.generation-1)
		}
	}
	return generation
}

func earliest(one, other time.Time) time.Time {
	if one.IsZero() || !other.IsZero() && other.Before(one) {
		return other
	}
	return one
}
