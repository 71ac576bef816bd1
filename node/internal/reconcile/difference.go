package reconcile

import (
	"net/netip"

	"railwright/node/internal/plan"
)

// applied holds the flows of a bridge as last programmed.
type applied map[plan.Key]plan.Flow

func appliedOf(flows []plan.Flow) applied {
	all := make(applied, len(flows))
	for _, flow := range flows {
		all[flow.Key()] = flow
	}
	return all
}

// difference returns the flows to add and remove so that the bridge has exactly want. A flow with other actions is in
// add and replaces the old one.
func (a applied) difference(want applied) (add, remove []plan.Flow) {
	for key, flow := range want {
		if old, found := a[key]; !found || old != flow {
			add = append(add, flow)
		}
	}
	for key, flow := range a {
		if _, kept := want[key]; !kept {
			remove = append(remove, flow)
		}
	}
	return add, remove
}

// prefixes is a set of prefixes.
type prefixes map[netip.Prefix]bool

func prefixesOf(list []netip.Prefix) prefixes {
	set := make(prefixes, len(list))
	for _, prefix := range list {
		set[prefix] = true
	}
	return set
}

func (p prefixes) hasAll(list []netip.Prefix) bool {
	for _, prefix := range list {
		if !p[prefix] {
			return false
		}
	}
	return true
}

func (p prefixes) hasAny(list []netip.Prefix) bool {
	for _, prefix := range list {
		if p[prefix] {
			return true
		}
	}
	return false
}

// intersect returns the prefixes that are in both sets.
func (p prefixes) intersect(other prefixes) []netip.Prefix {
	var both []netip.Prefix
	for prefix := range p {
		if other[prefix] {
			both = append(both, prefix)
		}
	}
	return both
}
