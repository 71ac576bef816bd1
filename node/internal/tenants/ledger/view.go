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

// mostViews that are remembered: whoever confirms an older one is not believed.
const mostViews = 64

// views that were given out, and which of them the flows are made from.
type views struct {
	local     []string
	numbers   map[string]uint32
	given     []given
	version   uint64
	confirmed uint64
}

// given view: what it let in, and the generations of the records that it was made from.
type given struct {
	version uint64
	tenants plan.Tenants
	from    map[string]int64
}

func newViews() views { return views{numbers: map[string]uint32{}} }

// forget the views given: they were made from records that this node no longer goes by.
func (v *views) forget() { v.given = nil }

// View for the tenants that have pods here. The version grows with what it lets in, not with what was heard.
func (l *Ledger) View(local []string, now time.Time) (plan.Tenants, uint64) {
	local = slices.Compact(slices.Sorted(slices.Values(local)))
	if len(l.views.given) == 0 || !slices.Equal(local, l.views.local) {
		l.views.local = local
		l.refresh(now)
	}
	last := l.views.given[len(l.views.given)-1]
	return last.tenants, last.version
}

// Version of the last view.
func (l *Ledger) Version() uint64 { return l.views.version }

// refresh works out what changed for the flows. Where a view lets in just what the last one did, the last one stands,
// as made from what is known now: so flows that need no change need no confirmation either.
func (l *Ledger) refresh(now time.Time) {
	l.findUsable(now)
	views := &l.views
	fresh := given{tenants: l.tenants(), from: l.stamps()}
	if count := len(views.given); count > 0 && same(views.given[count-1].tenants, fresh.tenants) {
		views.given[count-1].from = fresh.from
		if views.confirmed == views.version {
			l.saw(fresh.from, now)
		}
	} else {
		views.version++
		fresh.version = views.version
		views.given = append(views.given, fresh)
		if extra := len(views.given) - mostViews; extra > 0 {
			views.given = slices.Delete(views.given, 0, extra)
		}
	}
	for _, used := range l.uses {
		if !used.want && used.leftAt == 0 {
			used.leftAt = views.version
		}
	}
}

func same(a, other plan.Tenants) bool {
	return maps.Equal(a.Numbers, other.Numbers) && slices.Equal(a.Members, other.Members) &&
		slices.Equal(a.Pairs, other.Pairs)
}

// stamps of all records that a view is made from.
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

// tenants as the flows need them: nothing while this node is not known to the others.
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

// holder of an address: the tenant that a record names.
type holder struct{ id, tenant string }

// holders of addresses that are published one by one. No node that is honest names an address while another tenant's is
// live: a claim is granted once all have let go of it. So the record that named it first stands, and the other one is not
// heeded; where it cannot be told which was first, the address is nobody's.
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

// firstOf those that name an address for different tenants: this node itself, or the one that did so before; else nobody.
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

// pairs of tenants that are open to each other, of which one has pods here.
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

// Confirm that the flows of that view are in place; says by Due when the others should hear of it.
func (l *Ledger) Confirm(version uint64, now time.Time) {
	for _, view := range l.views.given {
		if view.version == version && version >= l.views.confirmed {
			l.views.confirmed = version
			l.saw(view.from, now)
		}
	}
}

// saw takes over what the flows are made from, and decides how soon others need to know.
func (l *Ledger) saw(from map[string]int64, now time.Time) {
	friends := l.scope(l.here())
	for id, generation := range from {
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
		if _, still := from[id]; !still {
			l.want(now.Add(soon))
		}
	}
	l.seen = maps.Clone(from)
}

func releasedSince(record *tenants.Record, generation int64) bool {
	return slices.ContainsFunc(record.Released, func(entry tenants.Released) bool { return entry.Generation > generation })
}

// unreleased: an own release that others wait for is newer than what was confirmed.
func (l *Ledger) unreleased(generation int64) bool {
	for _, let := range l.released {
		if let.generation > generation {
			return true
		}
	}
	return false
}
