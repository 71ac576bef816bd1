package ledger

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/tenants"
)

// Blocked explains why a claim is not granted, or not yet.
type Blocked struct {
	Reason error
	Detail string
	// Final means that waiting does not help. Brief means that the holder may be releasing the address. Contended means
	// that two nodes claimed at once and the other goes first; a later claim shows whether it got the address.
	Final, Brief, Contended bool
}

func (b *Blocked) Error() string { return b.Unwrap().Error() + ": " + b.Detail }

// Unwrap returns the reason, an error of package tenants.
func (b *Blocked) Unwrap() error { return b.Reason }

// refusal returns a Blocked that is final.
func refusal(reason error, detail string, arguments ...any) *Blocked {
	return &Blocked{Reason: reason, Detail: fmt.Sprintf(detail, arguments...), Final: true}
}

// Begin records the claim so that it gets published. It returns an error if the claim is impossible.
func (l *Ledger) Begin(request tenants.Claim, now time.Time) error {
	if err := tenants.CheckClaim(request); err != nil {
		return err
	}
	byPrefix := false
	for _, address := range request.Addresses {
		if held := l.claims[address]; held != nil {
			if held.owner != request.Owner || held.tenant != request.Tenant {
				return refusal(tenants.ErrTaken, "%s belongs to %s of tenant %s on this node; release it first", address, held.owner, held.tenant)
			}
			continue
		}
		if l.rules == nil {
			return refusal(tenants.ErrUnreachable, "tenants are not known yet")
		}
		var blocked *Blocked
		byPrefix, blocked = l.mode(address, request.Tenant)
		if blocked != nil {
			return blocked
		}
	}
	if len(l.claims)+len(request.Addresses) > tenants.MaxAddresses {
		return fmt.Errorf("node can hold at most %d addresses, has %d", tenants.MaxAddresses, len(l.claims))
	}
	for _, address := range request.Addresses {
		if held := l.claims[address]; held != nil {
			held.orphan = false
			continue
		}
		held := &claim{tenant: request.Tenant, rail: request.Rail, owner: request.Owner, byPrefix: byPrefix}
		l.claims[address] = held
		if !byPrefix {
			held.since = l.touch(now)
		}
	}
	l.planUses(now)
	for entry, used := range l.uses {
		for _, address := range request.Addresses {
			if held := l.claims[address]; held.byPrefix && !held.active && entry.Tenant == held.tenant {
				held.since = max(held.since, used.since)
			}
		}
	}
	l.refresh(now)
	return nil
}

// mode decides by the policy whether a claim is covered by the tenant's prefixes or published by itself.
func (l *Ledger) mode(address netip.Addr, tenant string) (byPrefix bool, blocked *Blocked) {
	owners := l.rules.Owners(address)
	_, byPrefix = l.rules.Prefixes(tenant)
	if others := slices.DeleteFunc(slices.Clone(owners), func(owner string) bool { return owner == tenant }); len(others) > 0 {
		return byPrefix, refusal(tenants.ErrTaken, "%s is in a prefix of tenant %s", address, strings.Join(others, " and of "))
	}
	if byPrefix && len(owners) == 0 {
		return byPrefix, refusal(tenants.ErrOutside, "%s, tenant %s", address, tenant)
	}
	return byPrefix, nil
}

// Decide grants a claim after Begin, or returns what blocks it. A granted claim is this node's until Release.
func (l *Ledger) Decide(claim tenants.Claim, now time.Time) *Blocked {
	for _, address := range claim.Addresses {
		held := l.claims[address]
		if held == nil || held.owner != claim.Owner || held.tenant != claim.Tenant {
			return refusal(tenants.ErrTaken, "claim of %s was withdrawn meanwhile", address)
		}
		if held.active {
			continue
		}
		if blocked := l.blocked(address, held, now); blocked != nil {
			return blocked
		}
	}
	for _, address := range claim.Addresses {
		l.activate(address, now)
	}
	l.refresh(now)
	return nil
}

func (l *Ledger) activate(address netip.Addr, now time.Time) {
	held := l.claims[address]
	if held.active {
		return
	}
	held.active, held.proven, held.orphan = true, true, false
	if held.byPrefix {
		l.unpublished++
		return
	}
	held.activeAt = l.touch(now)
	// From now on the claim itself keeps others from the address.
	delete(l.released, holding{address, held.tenant})
}

// Settle grants restored claims that no caller waits for.
func (l *Ledger) Settle(now time.Time) {
	changed := false
	for _, address := range sortedAddresses(l.claims) {
		held := l.claims[address]
		if held.orphan && !held.active && l.blocked(address, held, now) == nil {
			l.activate(address, now)
			changed = true
		}
	}
	if changed {
		l.refresh(now)
	}
}

// Withdraw drops the addresses of the claim that were not granted. An address that was once granted stays until
// Release: after a restart its pod may still run with its old flows.
func (l *Ledger) Withdraw(claim tenants.Claim, now time.Time) {
	for _, address := range claim.Addresses {
		held := l.claims[address]
		if held == nil || held.active || held.owner != claim.Owner {
			continue
		}
		if held.proven {
			held.orphan = true
			continue
		}
		// No node ever admits a pending address, so nothing has to be waited for.
		delete(l.claims, address)
		if !held.byPrefix {
			l.touch(now)
		}
	}
	l.planUses(now)
	l.refresh(now)
}

// Hold publishes addresses within a tenant's prefixes by themselves. It reports whether others can read them and this
// node knows all that others had published before: a node that gets a pod of the tenant later has read them.
func (l *Ledger) Hold(addresses []netip.Addr, now time.Time) (published bool) {
	published = true
	for _, address := range addresses {
		held := l.claims[address]
		if held == nil {
			continue
		}
		if held.byPrefix && held.proven {
			held.byPrefix, held.kept = false, true
			held.since = l.touch(now)
			held.activeAt = held.since
			l.markBusy(address, held.tenant, now)
		}
		published = published && (held.byPrefix || held.since <= l.checked)
	}
	l.refresh(now)
	return published
}

// Release releases addresses. Their pods must no longer be able to send.
func (l *Ledger) Release(addresses []netip.Addr, now time.Time) {
	for _, address := range addresses {
		held := l.claims[address]
		if held == nil {
			continue
		}
		delete(l.claims, address)
		switch {
		case held.byPrefix:
			l.markBusy(address, held.tenant, now)
		case held.proven:
			generation := l.touch(now)
			l.released[holding{address, held.tenant}] = &released{generation: generation, at: now}
		default:
			l.touch(now)
		}
	}
	l.planUses(now)
	l.refresh(now)
}

// Retain releases the claims of all owners that are not listed.
func (l *Ledger) Retain(owners []string, now time.Time) {
	var gone []netip.Addr
	for _, address := range sortedAddresses(l.claims) {
		held := l.claims[address]
		if !slices.Contains(owners, held.owner) {
			gone = append(gone, address)
		}
	}
	l.Release(gone, now)
}

// Missing returns the nodes with pods of the addresses' tenants, or of their peers, that have not confirmed that they
// admit the addresses.
func (l *Ledger) Missing(addresses []netip.Addr) []string {
	var missing []string
	for _, record := range l.records {
		for _, address := range addresses {
			held := l.claims[address]
			if held == nil || held.byPrefix || record.Leaving || !concerns(record, l.friends(held.tenant)) {
				continue
			}
			seen, found := record.Seen[l.ID()]
			if !held.active || !found || !covers(seen, held.activeAt) {
				missing = append(missing, record.Node)
				break
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// friends returns the tenant and its peers.
func (l *Ledger) friends(tenant string) map[string]bool {
	friends := map[string]bool{tenant: true}
	if l.rules != nil {
		for _, peer := range l.rules.Peers(tenant) {
			friends[peer] = true
		}
	}
	return friends
}

func concerns(record *tenants.Record, friends map[string]bool) bool {
	return slices.ContainsFunc(record.Addresses, func(entry tenants.Address) bool { return friends[entry.Tenant] }) ||
		slices.ContainsFunc(record.Prefixes, func(entry tenants.Use) bool { return friends[entry.Tenant] })
}
