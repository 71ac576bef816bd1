package reconcile

import (
	"net/netip"

	"railwright/node/internal/plan"
)

// applied flows of a bridge as they were last programmed.
type applied map[plan.Key]plan.Flow

func appliedOf(flows []plan.Flow) applied {
	all := make(applied, len(flows))
	for _, flow := range flows {
		all[flow.Key()] = flow
	}
	return all
}

// to says what to add and remove so that the bridge has exactly the flows wanted. A flow whose actions alone changed is
// in add: it replaces the old one.
func (a applied) to(want []plan.Flow) (add, remove []plan.Flow) {
	kept := make(map[plan.Key]bool, len(want))
	for _, flow := range want {
		kept[flow.Key()] = true
		if old, found := a[flow.Key()]; !found || old != flow {
			add = append(add, flow)
		}
	}
	for key, flow := range a {
		if !kept[key] {
			remove = append(remove, flow)
		}
	}
	return add, remove
}

// prefixes is a set of them.
type prefixes map[netip.Prefix]bool

func prefixesOf(list []netip.Prefix) prefixes {
	set := make(prefixes, len(list))
	for _, prefix := range list {
		set[prefix] = true
	}
	return set
}

func (p prefixes) has(list []netip.Prefix) bool {
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

// within lists those that are in the other set too.
func (p prefixes) within(other prefixes) []netip.Prefix {
	var both []netip.Prefix
	for prefix := range p {
		if other[prefix] {
			both = append(both, prefix)
		}
	}
	return both
}
