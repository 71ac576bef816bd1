package ledger

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/tenants"
)

// Blocked says why a claim is not granted, or not yet.
type Blocked struct {
	Reason error
	Detail string
	// Final: waiting does not help. Brief: somebody else's, who may just be giving it back. Contended: two asked at
	// once, and the other goes first; asking again later shows whether it got the address.
	Final, Brief, Contended bool
}

func (b *Blocked) Error() string { return b.Unwrap().Error() + ": " + b.Detail }

// Unwrap gives the reason as one of package tenants' errors.
func (b *Blocked) Unwrap() error { return b.Reason }

// refusal that no waiting helps against.
func refusal(reason error, detail string, arguments ...any) *Blocked {
	return &Blocked{Reason: reason, Detail: fmt.Sprintf(detail, arguments...), Final: true}
}

// Begin writes the claim down, so that it gets published. An error: it cannot be.
func (l *Ledger) Begin(request tenants.Claim, now time.Time) error {
	if err := tenants.CheckClaim(request); err != nil {
		return err
	}
	byPrefix := false
	for _, address := range request.Addresses {
		if held := l.claims[address]; held != nil {
			if held.owner != request.Owner || held.tenant != request.Tenant {
				return refusal(tenants.ErrTaken, "%s is held here by %s of tenant %s; release it first", address, held.owner, held.tenant)
			}
			continue
		}
		if l.rules == nil {
			return refusal(tenants.ErrUnreachable, "the tenants are not known yet")
		}
		var blocked *Blocked
		byPrefix, blocked = l.mode(address, request.Tenant)
		if blocked != nil {
			return blocked
		}
	}
	if len(l.claims)+len(request.Addresses) > tenants.MostAddresses {
		return fmt.Errorf("this node holds %d addresses, at most %d", len(l.claims), tenants.MostAddresses)
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

// mode of a claim by the policy: covered by the tenant's prefixes, or published by itself.
func (l *Ledger) mode(address netip.Addr, tenant string) (byPrefix bool, blocked *Blocked) {
	owners := l.rules.Owners(address)
	_, byPrefix = l.rules.Prefixes(tenant)
	if others := slices.DeleteFunc(slices.Clone(owners), func(owner string) bool { return owner == tenant }); len(others) > 0 {
		return byPrefix, refusal(tenants.ErrTaken, "%s lies in a prefix of tenant %s", address, strings.Join(others, " and of "))
	}
	if byPrefix && len(owners) == 0 {
		return byPrefix, refusal(tenants.ErrOutside, "%s, tenant %s", address, tenant)
	}
	return byPrefix, nil
}

// Decide grants a claim that was begun, or says what stands in its way. Once granted it is this node's until Release.
func (l *Ledger) Decide(claim tenants.Claim, now time.Time) *Blocked {
	for _, address := range claim.Addresses {
		held := l.claims[address]
		if held == nil || held.owner != claim.Owner || held.tenant != claim.Tenant {
			return refusal(tenants.ErrTaken, "the claim of %s was given up meanwhile", address)
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
	// From now on the claim itself keeps others off the address.
	delete(l.released, holding{address, held.tenant})
}

// Settle grants restored claims that nobody waits for.
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

// Withdraw gives up what of the claim was not granted. What was granted once stays until Release: after a restart its
// pod may still run with the flows of before.
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
		// No node ever let a pending address in, so there is nothing to wait for.
		delete(l.claims, address)
		if !held.byPrefix {
			l.touch(now)
		}
	}
	l.planUses(now)
	l.refresh(now)
}

// Hold addresses by themselves that a tenant's prefixes cover; says whether others can read it, and all that they had
// published until then is known: one that has a pod of the tenant since then has read it.
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
			l.busy(address, held.tenant, now)
		}
		published = published && (held.byPrefix || held.since <= l.checked)
	}
	l.refresh(now)
	return published
}

// Release gives addresses back. Their pods must not be able to send any more.
func (l *Ledger) Release(addresses []netip.Addr, now time.Time) {
	for _, address := range addresses {
		held := l.claims[address]
		if held == nil {
			continue
		}
		delete(l.claims, address)
		switch {
		case held.byPrefix:
			l.busy(address, held.tenant, now)
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

// Retain releases what owners hold that are not listed.
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

// Missing nodes that have pods of the addresses' tenants, or of peers, and do not say that they let the addresses in.
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

// friends of a tenant: itself and those that are open to it.
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
