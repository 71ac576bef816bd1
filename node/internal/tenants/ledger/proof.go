package ledger

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"railwright/node/internal/tenants"
)

// blocked returns what blocks a claim, or nil once it is proven that no node admits another tenant's packets from the
// address and no pod of another tenant can send from it.
func (l *Ledger) blocked(address netip.Addr, held *claim, now time.Time) *Blocked {
	// Until it is current, this node may have been declared off without knowing.
	if l.evicted || !l.current || !l.ready || l.checked < held.since {
		detail := fmt.Sprintf("claim of %s is not published yet", address)
		if reasons := l.Unexplained(); len(reasons) > 0 {
			detail = reasons[0]
		}
		return &Blocked{Reason: tenants.ErrUnreachable, Detail: detail}
	}
	if held.byPrefix {
		return l.blockedPrefix(address, held.tenant, now)
	}
	if _, blocked := l.mode(address, held.tenant); blocked != nil && l.rules != nil {
		return blocked
	}
	for _, id := range sorted(l.records) {
		if blocked := l.blockedBy(l.records[id], address, held.tenant, now); blocked != nil {
			return blocked
		}
	}
	for _, name := range sorted(l.unreadable) {
		if name != l.ID() && l.unreadable[name].MayHold(address) {
			return &Blocked{Reason: tenants.ErrTaken, Brief: true, Detail: fmt.Sprintf("%s is named by record %.80q, which cannot be parsed",
				address, name)}
		}
	}
	for _, id := range sorted(l.ghosts) {
		if blocked := l.blockedByGhost(id, l.ghosts[id], address, held.tenant); blocked != nil {
			return blocked
		}
	}
	for entry := range l.uses {
		if entry.Tenant != held.tenant && entry.Prefix.Contains(address) {
			return &Blocked{Reason: tenants.ErrNotReleased, Detail: fmt.Sprintf(
				"%s is in %s, which this node still uses for tenant %s", address, entry.Prefix, entry.Tenant)}
		}
	}
	for entry, let := range l.released {
		if entry.address == address && entry.tenant != held.tenant {
			if lacking := l.lackingNodes(l.ID(), let.generation, now); len(lacking) > 0 {
				return notReleased(address, entry.tenant, lacking)
			}
		}
	}
	return nil
}

// blockedBy returns how another node's record blocks a claim, or nil.
func (l *Ledger) blockedBy(record *tenants.Record, address netip.Addr, tenant string, now time.Time) *Blocked {
	for _, entry := range record.Addresses {
		if entry.Address != address {
			continue
		}
		switch {
		case record.Leaving:
			if lacking := l.lackingNodes(record.ID(), tenants.Gone, now); entry.Tenant != tenant && len(lacking) > 0 {
				return notReleased(address, entry.Tenant, lacking)
			}
		case !entry.Pending:
			return &Blocked{Reason: tenants.ErrTaken, Brief: true, Detail: fmt.Sprintf("%s belongs to tenant %s on node %s",
				address, entry.Tenant, record.Node)}
		case record.ID() < l.ID():
			// If two claims are concurrent, the record whose ID sorts first wins.
			return &Blocked{Reason: tenants.ErrTaken, Final: true, Contended: true, Detail: fmt.Sprintf(
				"tenant %s on node %s claims %s too", entry.Tenant, record.Node, address)}
		default:
			return &Blocked{Reason: tenants.ErrTaken, Detail: fmt.Sprintf(
				"tenant %s on node %s has not yet withdrawn its claim of %s", entry.Tenant, record.Node, address)}
		}
	}
	for _, entry := range record.Released {
		if entry.Address == address && entry.Tenant != tenant {
			if lacking := l.lackingNodes(record.ID(), entry.Generation, now); len(lacking) > 0 {
				return notReleased(address, entry.Tenant, lacking)
			}
		}
	}
	for _, entry := range record.Prefixes {
		if entry.Prefix.Contains(address) && entry.Tenant != tenant && !l.isUnused(record, now) {
			return &Blocked{Reason: tenants.ErrTaken, Brief: true, Detail: fmt.Sprintf(
				"%s is in %s, which node %s uses for tenant %s", address, entry.Prefix, record.Node, entry.Tenant)}
		}
	}
	return nil
}

// isUnused reports whether the record is leaving and no node uses it any more.
func (l *Ledger) isUnused(record *tenants.Record, now time.Time) bool {
	return record.Leaving && len(l.lackingNodes(record.ID(), tenants.Gone, now)) == 0
}

func (l *Ledger) blockedByGhost(id string, ghost *tenants.Record, address netip.Addr, tenant string) *Blocked {
	haunted := l.nodesUsingVanished(id)
	if len(haunted) == 0 && l.checked >= l.barriers[id] {
		return nil
	}
	for _, other := range touching(ghost, tenants.Host(address)) {
		if other != tenant {
			return notReleased(address, other, append(haunted, ghost.Node))
		}
	}
	return nil
}

// blockedPrefix returns what blocks an address that the tenant's prefixes cover. It is proven if the prefix is, unless
// a node has the address by itself.
func (l *Ledger) blockedPrefix(address netip.Addr, tenant string, now time.Time) *Blocked {
	for _, id := range sorted(l.records) {
		if blocked := l.blockedBy(l.records[id], address, tenant, now); blocked != nil {
			return blocked
		}
	}
	for _, prefix := range l.usable[tenant] {
		if prefix.Contains(address) {
			return nil
		}
	}
	if _, blocked := l.mode(address, tenant); blocked != nil {
		return blocked
	}
	return &Blocked{Reason: tenants.ErrNotReleased, Detail: fmt.Sprintf(
		"prefix of tenant %s with %s is not yet proven to be free of others", tenant, address)}
}

// touching returns the tenants that a record has around or inside the prefix.
func touching(record *tenants.Record, prefix netip.Prefix) []string {
	var found []string
	for _, entry := range record.Addresses {
		if prefix.Contains(entry.Address) {
			found = append(found, entry.Tenant)
		}
	}
	for _, entry := range record.Released {
		if prefix.Contains(entry.Address) {
			found = append(found, entry.Tenant)
		}
	}
	for _, entry := range record.Prefixes {
		if entry.Prefix.Overlaps(prefix) {
			found = append(found, entry.Tenant)
		}
	}
	return found
}

func notReleased(address netip.Addr, tenant string, nodes []string) *Blocked {
	return &Blocked{Reason: tenants.ErrNotReleased, Detail: fmt.Sprintf("%s of tenant %s, on %s",
		address, tenant, strings.Join(nodes, ", "))}
}
