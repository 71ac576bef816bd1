package ledger

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// use is a prefix that this node uses. It stays published while a flow or a pod of this node may depend on it.
type use struct {
	// since is the generation that first published it.
	since int64
	// want is set by the policy and the tenants with pods here.
	want bool
	// leftAt is the first view without it.
	leftAt uint64
	// busyUntil is when packets of a deleted pod in it are certainly gone.
	busyUntil time.Time
}

// planUses publishes the prefixes of the tenants with pods here, and of their peers.
func (l *Ledger) planUses(now time.Time) {
	want := map[tenants.Use]bool{}
	if l.rules != nil {
		for tenant := range l.scope(l.localTenants()) {
			prefixes, _ := l.rules.Prefixes(tenant)
			for _, prefix := range prefixes {
				want[tenants.Use{Prefix: prefix, Tenant: tenant}] = true
			}
		}
	}
	for _, entry := range slices.SortedFunc(maps.Keys(want), compareUses) {
		if l.uses[entry] == nil {
			l.uses[entry] = &use{since: l.touch(now)}
		}
	}
	for entry, used := range l.uses {
		if used.want && !want[entry] {
			used.leftAt = 0
			l.want(now.Add(soon))
		}
		used.want = want[entry]
	}
}

func compareUses(a, b tenants.Use) int {
	return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Tenant, b.Tenant))
}

// scope returns the tenants and their peers.
func (l *Ledger) scope(names []string) map[string]bool {
	scope := map[string]bool{}
	for _, name := range names {
		maps.Copy(scope, l.friends(name))
	}
	return scope
}

// localTenants returns the tenants that hold an address on this node.
func (l *Ledger) localTenants() []string {
	names := map[string]bool{}
	for _, held := range l.claims {
		names[held.tenant] = true
	}
	return slices.Collect(maps.Keys(names))
}

// markBusy records that a pod of the tenant had the address until now.
func (l *Ledger) markBusy(address netip.Addr, tenant string, now time.Time) {
	for entry, used := range l.uses {
		if entry.Tenant == tenant && entry.Prefix.Contains(address) {
			used.busyUntil = now.Add(Drain)
		}
	}
}

// findUsable computes the part of each tenant's prefixes that this node may use: the policy's prefixes that were
// published before others were read and that pods can have, minus everything that another tenant may still have.
func (l *Ledger) findUsable(now time.Time) {
	l.usable = map[string][]netip.Prefix{}
	want, checked := map[string][]netip.Prefix{}, map[string][]netip.Prefix{}
	for entry, used := range l.uses {
		if used.want {
			want[entry.Tenant] = append(want[entry.Tenant], entry.Prefix)
		}
		if used.since <= l.checked {
			checked[entry.Tenant] = append(checked[entry.Tenant], entry.Prefix)
		}
	}
	var index tenants.PrefixIndex
	for tenant, prefixes := range want {
		l.usable[tenant] = tenants.Common(prefixes, checked[tenant])
		if l.pods != nil {
			l.usable[tenant] = tenants.Common(l.usable[tenant], l.pods)
		}
		for _, prefix := range l.usable[tenant] {
			index.Add(prefix, tenant)
		}
	}
	if index.Empty() {
		return
	}
	for tenant, holes := range l.holes(&index, now) {
		l.usable[tenant] = tenants.Without(l.usable[tenant], holes)
	}
}

// holes returns the holes in the prefixes of the index: what others hold or may still use.
func (l *Ledger) holes(index *tenants.PrefixIndex, now time.Time) map[string][]netip.Prefix {
	holes := map[string][]netip.Prefix{}
	dig := func(hole netip.Prefix, by string) {
		index.Around(hole, func(_ netip.Prefix, tenant string) {
			if tenant != by {
				holes[tenant] = append(holes[tenant], hole)
			}
		})
	}
	for address, held := range l.claims {
		if !held.byPrefix {
			dig(tenants.Host(address), held.tenant)
		}
	}
	for entry, let := range l.released {
		if len(l.lackingNodes(l.ID(), let.generation, now)) > 0 {
			dig(tenants.Host(entry.address), entry.tenant)
		}
	}
	var wider tenants.PrefixIndex
	for entry := range l.uses {
		dig(entry.Prefix, entry.Tenant)
		wider.Add(entry.Prefix, entry.Tenant)
	}
	for _, record := range l.records {
		if !l.isUnused(record, now) {
			l.digRecord(record, dig, &wider, now)
		}
	}
	for name, record := range l.unreadable {
		if name != l.ID() {
			for _, prefix := range record.Names {
				dig(prefix, "")
				wider.Add(prefix, "")
			}
		}
	}
	for id, ghost := range l.ghosts {
		if len(l.nodesUsingVanished(id)) > 0 || l.checked < l.barriers[id] {
			l.digRecord(ghost, dig, &wider, now)
		}
	}
	l.digUsable(&wider, holes)
	return holes
}

// digUsable removes the part of a tenant's prefixes that is within a wider prefix of another tenant.
func (l *Ledger) digUsable(wider *tenants.PrefixIndex, holes map[string][]netip.Prefix) {
	for tenant, prefixes := range l.usable {
		for _, prefix := range prefixes {
			wider.Around(prefix, func(_ netip.Prefix, other string) {
				if other != tenant {
					holes[tenant] = append(holes[tenant], prefix)
				}
			})
		}
	}
}

func (l *Ledger) digRecord(
	record *tenants.Record, dig func(netip.Prefix, string), wider *tenants.PrefixIndex, now time.Time,
) {
	for _, entry := range record.Addresses {
		dig(tenants.Host(entry.Address), entry.Tenant)
	}
	for _, entry := range record.Prefixes {
		dig(entry.Prefix, entry.Tenant)
		wider.Add(entry.Prefix, entry.Tenant)
	}
	for _, entry := range record.Released {
		if record.Leaving || len(l.lackingNodes(record.ID(), entry.Generation, now)) > 0 {
			dig(tenants.Host(entry.Address), entry.Tenant)
		}
	}
}
