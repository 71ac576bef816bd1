package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/tenants"
)

// mostProblems that are told at once: the first ones name the cause.
const mostProblems = 20

// longWait is how long nodes may take to let go of an address before that is a problem.
const longWait = time.Minute

// Stopped says why no claim at all can be granted here, one sentence each.
func (l *Ledger) Stopped() []string {
	problems := l.Unexplained()
	if l.rules == nil && l.fault != "" {
		problems = append(problems, "the tenants cannot be read: "+l.fault)
	}
	if l.evicted {
		problems = append(problems, "this node's record was taken away or written by another: nothing is let in until it has a new one")
	}
	return problems
}

// Problems of single records, tenants and addresses, one sentence each: all others are served.
func (l *Ledger) Problems(now time.Time) []string {
	problems := l.quarantined()
	if l.rules != nil && l.fault != "" {
		problems = append(problems, "the tenants cannot be read, the last ones stay: "+l.fault)
	}
	if l.rules != nil {
		problems = append(problems, l.rules.Problems()...)
	}
	if l.policy != nil && l.pods != nil {
		for _, fault := range tenants.Beyond(*l.policy, l.pods) {
			problems = append(problems, fault.Why)
		}
	}
	problems = append(problems, l.stolen()...)
	problems = append(problems, l.disputed(now)...)
	problems = append(problems, l.lingering(now)...)
	for id, ghost := range l.ghosts {
		problems = append(problems, fmt.Sprintf("record %s of node %s was deleted by hand; nodes that still act by it: %s",
			id, ghost.Node, strings.Join(l.haunted(id), ", ")))
	}
	for _, record := range l.records {
		if record.Node == l.node && !record.Leaving {
			problems = append(problems, fmt.Sprintf("another record, %s, goes by this node's name: two nodes with one name, or its disk was lost twice",
				record.ID()))
		}
	}
	slices.Sort(problems)
	if extra := len(problems) - mostProblems; extra > 0 {
		problems = append(problems[:mostProblems], fmt.Sprintf("and %d more", extra))
	}
	return problems
}

// stolen addresses: named by a record while another one's is live.
func (l *Ledger) stolen() []string {
	var problems []string
	for address, all := range l.contested {
		stands := l.first[address]
		for _, holder := range all {
			switch {
			case stands == "":
				problems = append(problems, fmt.Sprintf("%s is let in nowhere: record %s names it for tenant %s, another one for another",
					address, holder.id, holder.tenant))
			case holder.id != stands:
				problems = append(problems, fmt.Sprintf("record %s names %s for tenant %s, which record %s had before: that is not heeded; "+
					"see who writes that record", holder.id, address, holder.tenant, stands))
			}
		}
	}
	return problems
}

// disputed addresses and prefixes: nobody's until one side gives way.
func (l *Ledger) disputed(now time.Time) []string {
	var problems []string
	for address, held := range l.claims {
		if held.orphan && !held.active {
			if blocked := l.blocked(address, held, now); blocked != nil {
				problems = append(problems, fmt.Sprintf("%s of %s is let in nowhere: %v", address, held.owner, blocked))
			}
		}
		if held.active && held.byPrefix && l.ready && !inside(l.usable[held.tenant], address) {
			problems = append(problems, fmt.Sprintf("%s of %s is let in nowhere: tenant %s has it in no prefix that is its alone",
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
					problems = append(problems, fmt.Sprintf("%s of tenant %s is still used for tenant %s (%s) by node %s",
						entry.Prefix, entry.Tenant, other.Tenant, other.Prefix, record.Node))
				}
			}
		}
	}
	return problems
}

// lingering releases: by which nodes they are not confirmed.
func (l *Ledger) lingering(now time.Time) []string {
	waiting := map[string]int{}
	for _, let := range l.released {
		if now.Sub(let.at) < longWait {
			continue
		}
		for _, node := range l.lacking(l.ID(), let.generation, now) {
			waiting[node]++
		}
	}
	var problems []string
	for _, node := range slices.Sorted(maps.Keys(waiting)) {
		problems = append(problems, fmt.Sprintf("node %s has not let go of %d addresses released here: no other tenant can have them",
			node, waiting[node]))
	}
	return problems
}
