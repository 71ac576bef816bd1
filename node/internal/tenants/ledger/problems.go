package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/tenants"
)

// maxProblems limits the reported problems. The first ones name the cause.
const maxProblems = 20

// longWait is how long nodes may take to confirm a release before that is a problem.
const longWait = time.Minute

// Stopped returns the reasons why no claim can be granted here, a sentence each.
func (l *Ledger) Stopped() []string {
	problems := l.Unexplained()
	if l.rules == nil && l.fault != "" {
		problems = append(problems, "read tenants: "+l.fault)
	}
	if l.evicted {
		problems = append(problems, "this node's record was removed or overwritten; nothing is admitted until there is a new one")
	}
	return problems
}

// Problems returns the problems of single records, tenants and addresses, a sentence each. They affect nothing else.
func (l *Ledger) Problems(now time.Time) []string {
	problems := l.quarantinedRecords()
	if l.rules != nil && l.fault != "" {
		problems = append(problems, "read tenants (keeping the last ones): "+l.fault)
	}
	if l.rules != nil {
		problems = append(problems, l.rules.Problems()...)
	}
	if l.policy != nil && l.pods != nil {
		for _, fault := range tenants.Beyond(*l.policy, l.pods) {
			problems = append(problems, fault.Reason)
		}
	}
	problems = append(problems, l.stolenAddresses()...)
	problems = append(problems, l.disputedHoldings(now)...)
	problems = append(problems, l.lingeringReleases(now)...)
	for id, ghost := range l.ghosts {
		problems = append(problems, fmt.Sprintf("record %s of node %s was deleted by hand; nodes that still use it: %s",
			id, ghost.Node, strings.Join(l.nodesUsingVanished(id), ", ")))
	}
	for _, record := range l.records {
		if record.Node == l.node && !record.Leaving {
			problems = append(problems, fmt.Sprintf("record %s also has this node's name: two nodes share a name, or the disk was lost twice",
				record.ID()))
		}
	}
	slices.Sort(problems)
	if extra := len(problems) - maxProblems; extra > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", extra))
	}
	return problems
}

// stolenAddresses describes addresses that a record names while another tenant's is live.
func (l *Ledger) stolenAddresses() []string {
	var problems []string
	for address, all := range l.contested {
		stands := l.first[address]
		for _, holder := range all {
			switch {
			case stands == "":
				problems = append(problems, fmt.Sprintf("%s is not admitted: record %s names it for tenant %s, and another record for another tenant",
					address, holder.id, holder.tenant))
			case holder.id != stands:
				problems = append(problems, fmt.Sprintf("record %s names %s for tenant %s, but record %s had it before, so the entry is ignored; "+
					"find out who writes that record", holder.id, address, holder.tenant, stands))
			}
		}
	}
	return problems
}

// disputedHoldings describes addresses and prefixes that belong to nobody until a side gives way.
func (l *Ledger) disputedHoldings(now time.Time) []string {
	var problems []string
	for address, held := range l.claims {
		if held.orphan && !held.active {
			if blocked := l.blocked(address, held, now); blocked != nil {
				problems = append(problems, fmt.Sprintf("%s of %s is not admitted: %v", address, held.owner, blocked))
			}
		}
		if held.active && held.byPrefix && l.ready && !inside(l.usable[held.tenant], address) {
			problems = append(problems, fmt.Sprintf("%s of %s is not admitted: no prefix with it belongs to tenant %s only",
				address, held.owner, held.tenant))
		}
	}
	for entry, used := range l.uses {
		if !used.want || used.since > l.checked {
			continue
		}
		for _, record := range l.records {
			for _, other := range record.Prefixes {
				if other.Tenant != entry.Tenant && other.Prefix.Overlaps(entry.Prefix) {
					problems = append(problems, fmt.Sprintf("prefix %s of tenant %s is still in use for tenant %s (%s) by node %s",
						entry.Prefix, entry.Tenant, other.Tenant, other.Prefix, record.Node))
				}
			}
		}
	}
	return problems
}

// lingeringReleases describes releases that nodes have not confirmed for a long time.
func (l *Ledger) lingeringReleases(now time.Time) []string {
	waiting := map[string]int{}
	for _, let := range l.released {
		if now.Sub(let.at) < longWait {
			continue
		}
		for _, node := range l.lackingNodes(l.ID(), let.generation, now) {
			waiting[node]++
		}
	}
	var problems []string
	for _, node := range slices.Sorted(maps.Keys(waiting)) {
		problems = append(problems, fmt.Sprintf("node %s has not confirmed %d addresses released here; no other tenant can have them",
			node, waiting[node]))
	}
	return problems
}
