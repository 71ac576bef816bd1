package ledger

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// maxViews limits the remembered views. Confirmations of older ones are ignored.
const maxViews = 64

// views are the views that were handed out, and the view that the flows implement.
type views struct {
	local     []string
	numbers   map[string]uint32
	issued    []issuedView
	version   uint64
	confirmed uint64
}

// issuedView is a view with the generations of the records that it was made from.
type issuedView struct {
	version uint64
	tenants plan.Tenants
	from    map[string]int64
}

func newViews() views { return views{numbers: map[string]uint32{}} }

// forget drops the views: they were made from records that this node no longer uses.
func (v *views) forget() { v.issued = nil }

// View returns the view for the tenants with pods here. Its version grows with what it admits, not with every snapshot.
func (l *Ledger) View(local []string, now time.Time) (plan.Tenants, uint64) {
	local = slices.Compact(slices.Sorted(slices.Values(local)))
	if len(l.views.issued) == 0 || !slices.Equal(local, l.views.local) {
		l.views.local = local
		l.refresh(now)
	}
	last := l.views.issued[len(l.views.issued)-1]
	return last.tenants, last.version
}

// Version returns the version of the last view.
func (l *Ledger) Version() uint64 { return l.views.version }

// refresh computes changes for the flows. If a view admits the same as the last one, the last one remains with the new
// generations, so that unchanged flows need no confirmation.
func (l *Ledger) refresh(now time.Time) {
	l.findUsable(now)
	views := &l.views
	fresh := issuedView{tenants: l.tenants(), from: l.stamps()}
	if count := len(views.issued); count > 0 && equalTenants(views.issued[count-1].tenants, fresh.tenants) {
		views.issued[count-1].from = fresh.from
		if views.confirmed == views.version {
			l.recordConfirmed(fresh.from, now)
		}
	} else {
		views.version++
		fresh.version = views.version
		views.issued = append(views.issued, fresh)
		if extra := len(views.issued) - maxViews; extra > 0 {
			views.issued = slices.Delete(views.issued, 0, extra)
		}
	}
	for _, used := range l.uses {
		if !used.want && used.leftAt == 0 {
			used.leftAt = views.version
		}
	}
}

func equalTenants(a, b plan.Tenants) bool {
	return maps.Equal(a.Numbers, b.Numbers) && slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Pairs, b.Pairs)
}

// stamps returns the generations of all records that a view is made from.
func (l *Ledger) stamps() map[string]int64 {
	stamps := make(map[string]int64, len(l.records)+1)
	for id, record := range l.records {
		switch {
		case record.Leaving:
			stamps[id] = tenants.Gone
		case l.announced[id]:
			stamps[id] = record.Generation
		}
	}
	stamps[l.ID()] = l.generation
	return stamps
}

// tenants returns the state for the flows. It is empty while the other nodes do not know this node.
func (l *Ledger) tenants() plan.Tenants {
	if !l.ready || l.evicted || l.rules == nil {
		return plan.Tenants{}
	}
	scope := l.scope(l.views.local)
	result := plan.Tenants{Numbers: make(map[string]uint32, len(scope))}
	for _, tenant := range slices.Sorted(maps.Keys(scope)) {
		if l.views.numbers[tenant] == 0 {
			l.views.numbers[tenant] = uint32(len(l.views.numbers) + 1)
		}
		result.Numbers[tenant] = l.views.numbers[tenant]
		for _, prefix := range l.usable[tenant] {
			result.Members = append(result.Members, plan.Member{Prefix: prefix, Tenant: tenant})
		}
	}
	for address, tenant := range l.holders() {
		if scope[tenant] && !inside(l.usable[tenant], address) {
			result.Members = append(result.Members, plan.Member{Prefix: tenants.Host(address), Tenant: tenant})
		}
	}
	slices.SortFunc(result.Members, func(a, b plan.Member) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Tenant, b.Tenant))
	})
	result.Pairs = l.pairs()
	return result
}

func inside(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// holder is the tenant that a record names for an address.
type holder struct{ id, tenant string }

// holders returns the tenants of addresses that are published by themselves. No honest node names an address while
// another tenant's is live, because a claim is granted once all nodes have seen the release. So the record that named
// it first counts and the other is ignored; if it is unknown which was first, the address belongs to nobody.
func (l *Ledger) holders() map[netip.Addr]string {
	found, contested := map[netip.Addr]holder{}, map[netip.Addr][]holder{}
	enter := func(address netip.Addr, tenant, id string) {
		h := holder{id, tenant}
		other, taken := found[address]
		if !taken {
			found[address] = h
			return
		}
		if other.tenant != tenant && len(contested[address]) == 0 {
			contested[address] = []holder{other}
		}
		if other.tenant != tenant || len(contested[address]) > 0 {
			contested[address] = append(contested[address], h)
		}
	}
	for address, held := range l.claims {
		if held.active && !held.byPrefix {
			enter(address, held.tenant, l.ID())
		}
	}
	for id, record := range l.records {
		if record.Leaving || !l.announced[id] {
			continue
		}
		for _, entry := range record.Addresses {
			if !entry.Pending {
				enter(entry.Address, entry.Tenant, id)
			}
		}
	}
	l.contested = contested
	for address, all := range contested {
		found[address] = l.firstOf(address, all)
	}
	holders, first := make(map[netip.Addr]string, len(found)), make(map[netip.Addr]string, len(found))
	for address, h := range found {
		holders[address] = h.tenant
		if h.id != "" {
			first[address] = h.id
		}
	}
	l.first = first
	return holders
}

// firstOf returns the holder among those that name an address for different tenants: this node itself, or the one that
// had it before, or nobody.
func (l *Ledger) firstOf(address netip.Addr, all []holder) holder {
	for _, h := range all {
		if h.id == l.ID() {
			return h
		}
	}
	for _, h := range all {
		if h.id == l.first[address] {
			return h
		}
	}
	return holder{}
}

// pairs returns the peered tenants of which one has pods here.
func (l *Ledger) pairs() [][2]string {
	var pairs [][2]string
	for _, tenant := range l.views.local {
		for _, peer := range l.rules.Peers(tenant) {
			pairs = append(pairs, [2]string{min(tenant, peer), max(tenant, peer)})
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return slices.Compact(pairs)
}

// Confirm records that the flows of the view are in place. Due then returns when to publish that.
func (l *Ledger) Confirm(version uint64, now time.Time) {
	for _, view := range l.views.issued {
		if view.version == version && version >= l.views.confirmed {
			l.views.confirmed = version
			l.recordConfirmed(view.from, now)
		}
	}
}

// recordConfirmed stores the generations that the installed flows implement, and schedules their publication.
func (l *Ledger) recordConfirmed(generations map[string]int64, now time.Time) {
	friends := l.scope(l.localTenants())
	for id, generation := range generations {
		before, found := l.seen[id]
		if found && before == generation {
			continue
		}
		record := l.records[id]
		switch {
		case id == l.ID():
			if l.unreleased(before) {
				l.want(now.Add(soon))
			}
		case record == nil:
		case !found || before < l.news[id] && concerns(record, friends):
			l.want(now)
		case record.Leaving || releasedSince(record, before):
			l.want(now.Add(soon))
		default:
			l.want(now.Add(later))
		}
	}
	for id := range l.seen {
		if _, still := generations[id]; !still {
			l.want(now.Add(soon))
		}
	}
	l.seen = maps.Clone(generations)
}

func releasedSince(record *tenants.Record, generation int64) bool {
	return slices.ContainsFunc(record.Released, func(entry tenants.Released) bool { return entry.Generation > generation })
}

// unreleased reports whether an own release that others wait for is newer than the confirmed generation.
func (l *Ledger) unreleased(generation int64) bool {
	for _, let := range l.released {
		if let.generation > generation {
			return true
		}
	}
	return false
}
