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

func (blocked *Blocked) Error() string { return blocked.Unwrap().Error() + ": " + blocked.Detail }

// Unwrap gives the reason as one of package tenants' errors.
func (blocked *Blocked) Unwrap() error { return blocked.Reason }

// refusal that no waiting helps against.
func refusal(reason error, detail string, arguments ...any) *Blocked {
	return &Blocked{Reason: reason, Detail: fmt.Sprintf(detail, arguments...), Final: true}
}

// Begin writes the claim down, so that it gets published. An error: it cannot be.
func (ledger *Ledger) Begin(asked tenants.Claim, now time.Time) error {
	if err := tenants.CheckClaim(asked); err != nil {
		return err
	}
	byPrefix := false
	for _, address := range asked.Addresses {
		if held := ledger.claims[address]; held != nil {
			if held.owner != asked.Owner || held.tenant != asked.Tenant {
				return refusal(tenants.ErrTaken, "%s is held here by %s of tenant %s; release it first", address, held.owner, held.tenant)
			}
			continue
		}
		if ledger.rules == nil {
			return refusal(tenants.ErrUnreachable, "the tenants are not known yet")
		}
		var blocked *Blocked
		if byPrefix, blocked = ledger.mode(address, asked.Tenant); blocked != nil {
			return blocked
		}
	}
	if len(ledger.claims)+len(asked.Addresses) > tenants.MostAddresses {
		return fmt.Errorf("this node holds %d addresses, at most %d", len(ledger.claims), tenants.MostAddresses)
	}
	for _, address := range asked.Addresses {
		if held := ledger.claims[address]; held != nil {
			held.orphan = false
			continue
		}
		held := &claim{tenant: asked.Tenant, rail: asked.Rail, owner: asked.Owner, byPrefix: byPrefix}
		ledger.claims[address] = held
		if !byPrefix {
			held.since = ledger.touch(now)
		}
	}
	ledger.planUses(now)
	for entry, used := range ledger.uses {
		for _, address := range asked.Addresses {
			if held := ledger.claims[address]; held.byPrefix && !held.active && entry.Tenant == held.tenant {
				held.since = max(held.since, used.since)
			}
		}
	}
	ledger.refresh(now)
	return nil
}

// mode of a claim by the policy: covered by the tenant's prefixes, or published by itself.
func (ledger *Ledger) mode(address netip.Addr, tenant string) (byPrefix bool, blocked *Blocked) {
	owners := ledger.rules.Owners(address)
	_, byPrefix = ledger.rules.Prefixes(tenant)
	if others := slices.DeleteFunc(slices.Clone(owners), func(owner string) bool { return owner == tenant }); len(others) > 0 {
		return byPrefix, refusal(tenants.ErrTaken, "%s lies in a prefix of tenant %s", address, strings.Join(others, " and of "))
	}
	if byPrefix && len(owners) == 0 {
		return byPrefix, refusal(tenants.ErrOutside, "%s, tenant %s", address, tenant)
	}
	return byPrefix, nil
}

// Decide grants a claim that was begun, or says what stands in its way. Once granted it is this node's until Release.
func (ledger *Ledger) Decide(asked tenants.Claim, now time.Time) *Blocked {
	for _, address := range asked.Addresses {
		held := ledger.claims[address]
		if held == nil || held.owner != asked.Owner || held.tenant != asked.Tenant {
			return refusal(tenants.ErrTaken, "the claim of %s was given up meanwhile", address)
		}
		if held.active {
			continue
		}
		if blocked := ledger.blocked(address, held, now); blocked != nil {
			return blocked
		}
	}
	for _, address := range asked.Addresses {
		ledger.activate(address, now)
	}
	ledger.refresh(now)
	return nil
}

func (ledger *Ledger) activate(address netip.Addr, now time.Time) {
	held := ledger.claims[address]
	if held.active {
		return
	}
	held.active, held.proven, held.orphan = true, true, false
	if held.byPrefix {
		ledger.unpublished++
		return
	}
	held.activeAt = ledger.touch(now)
	// From now on the claim itself keeps others off the address.
	delete(ledger.released, holding{address, held.tenant})
}

// Settle grants restored claims that nobody waits for.
func (ledger *Ledger) Settle(now time.Time) {
	changed := false
	for _, address := range sortedAddresses(ledger.claims) {
		held := ledger.claims[address]
		if held.orphan && !held.active && ledger.blocked(address, held, now) == nil {
			ledger.activate(address, now)
			changed = true
		}
	}
	if changed {
		ledger.refresh(now)
	}
}

// Withdraw gives up what of the claim was not granted. What was granted once stays until Release: after a restart its
// pod may still run with the flows of before.
func (ledger *Ledger) Withdraw(asked tenants.Claim, now time.Time) {
	for _, address := range asked.Addresses {
		held := ledger.claims[address]
		if held == nil || held.active || held.owner != asked.Owner {
			continue
		}
		if held.proven {
			held.orphan = true
			continue
		}
		// No node ever let a pending address in, so there is nothing to wait for.
		delete(ledger.claims, address)
		if !held.byPrefix {
			ledger.touch(now)
		}
	}
	ledger.planUses(now)
	ledger.refresh(now)
}

// Release gives addresses back. Their pods must not be able to send any more.
func (ledger *Ledger) Release(addresses []netip.Addr, now time.Time) {
	for _, address := range addresses {
		held := ledger.claims[address]
		if held == nil {
			continue
		}
		delete(ledger.claims, address)
		switch {
		case held.byPrefix:
			ledger.busy(address, held.tenant, now)
		case held.proven:
			generation := ledger.touch(now)
			ledger.released[holding{address, held.tenant}] = &released{generation: generation, at: now}
		default:
			ledger.touch(now)
		}
	}
	ledger.planUses(now)
	ledger.refresh(now)
}

// Retain releases what owners hold that are not listed.
func (ledger *Ledger) Retain(owners []string, now time.Time) {
	var gone []netip.Addr
	for _, address := range sortedAddresses(ledger.claims) {
		held := ledger.claims[address]
		if !slices.Contains(owners, held.owner) {
			gone = append(gone, address)
		}
	}
	ledger.Release(gone, now)
}

// Missing nodes that have pods of the addresses' tenants, or of peers, and do not say that they let the addresses in.
func (ledger *Ledger) Missing(addresses []netip.Addr) []string {
	var missing []string
	for _, record := range ledger.records {
		for _, address := range addresses {
			held := ledger.claims[address]
			if held == nil || held.byPrefix || record.Leaving || !concerns(record, ledger.friends(held.tenant)) {
				continue
			}
			seen, found := record.Seen[ledger.ID()]
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
func (ledger *Ledger) friends(tenant string) map[string]bool {
	friends := map[string]bool{tenant: true}
	if ledger.rules != nil {
		for _, peer := range ledger.rules.Peers(tenant) {
			friends[peer] = true
		}
	}
	return friends
}

func concerns(record *tenants.Record, friends map[string]bool) bool {
	return slices.ContainsFunc(record.Addresses, func(entry tenants.Address) bool { return friends[entry.Tenant] }) ||
		slices.ContainsFunc(record.Prefixes, func(entry tenants.Use) bool { return friends[entry.Tenant] })
}
