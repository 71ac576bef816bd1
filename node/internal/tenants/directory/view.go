package directory

import (
	"cmp"
	"net/netip"
	"slices"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// view is what the flows implement.
type view struct {
	version uint64
	scope   map[string]bool
	shown   map[netip.Addr]string
	numbers map[string]uint32
	pairs   [][2]string
	redrawn uint64
	log     []change
	// forgotten is the version of the last change that is not in the log.
	forgotten uint64
}

type change struct {
	version uint64
	address netip.Addr
	// was is the tenant before the change, or "".
	was string
}

// maxChanges limits the remembered changes. A large tenant that a node joins must not exceed it: a rail whose view is
// forgotten compares all its flows.
const maxChanges = 1 << 17

// show brings an address into the view as it is now.
func (s *state) show(address netip.Addr) {
	was, is := s.shown[address], s.tenantOf(address)
	if was == is {
		return
	}
	if is == "" {
		delete(s.shown, address)
	} else {
		s.shown[address] = is
	}
	s.version++
	s.log = append(s.log, change{s.version, address, was})
	if extra := len(s.log) - maxChanges; extra > 0 {
		extra = max(extra, maxChanges/2)
		s.forgotten = s.log[extra-1].version
		s.log = slices.Delete(s.log, 0, extra)
	}
}

// since returns what changed since a version.
func (s *state) since(version uint64) tenants.Change {
	result := tenants.Change{Version: s.version, Numbers: map[string]uint32{}, Pairs: s.pairs, Redrawn: version < s.redrawn, Members: len(s.shown)}
	for tenant := range s.scope {
		result.Numbers[tenant] = s.numbers[tenant]
	}
	if version < s.forgotten || version == 0 || version > s.version {
		result.Whole, result.Redrawn = true, true
		result.Added = make([]plan.Member, 0, len(s.shown))
		for address, tenant := range s.shown {
			result.Added = append(result.Added, plan.Member{Prefix: tenants.Host(address), Tenant: tenant})
		}
		return result
	}
	from, _ := slices.BinarySearchFunc(s.log, version+1, func(c change, version uint64) int { return cmp.Compare(c.version, version) })
	met := map[netip.Addr]bool{}
	for _, c := range s.log[from:] {
		if met[c.address] {
			continue
		}
		met[c.address] = true
		is := s.shown[c.address]
		switch {
		case is == c.was:
		case is != "":
			result.Added = append(result.Added, plan.Member{Prefix: tenants.Host(c.address), Tenant: is})
		default:
			result.Removed = append(result.Removed, plan.Member{Prefix: tenants.Host(c.address), Tenant: c.was})
		}
	}
	return result
}
