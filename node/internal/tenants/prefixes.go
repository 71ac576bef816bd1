package tenants

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// maxHoles limits the holes in the prefixes of a tenant. With more, none of them is used. A hole costs up to 24 (112)
// prefixes.
const maxHoles = 256

// PrefixIndex finds the prefixes that contain an address or another prefix.
type PrefixIndex struct {
	tenants map[netip.Prefix][]string
	// lengths lists the prefix lengths that occur, ascending, for IPv4 and IPv6.
	lengths [2][]int
}

// Add adds a prefix of a tenant.
func (p *PrefixIndex) Add(prefix netip.Prefix, tenant string) {
	if p.tenants == nil {
		p.tenants = map[netip.Prefix][]string{}
	}
	if !slices.Contains(p.tenants[prefix], tenant) {
		p.tenants[prefix] = append(p.tenants[prefix], tenant)
	}
	lengths := &p.lengths[family(prefix.Addr())]
	if at, found := slices.BinarySearch(*lengths, prefix.Bits()); !found {
		*lengths = slices.Insert(*lengths, at, prefix.Bits())
	}
}

// Around calls visit for every prefix that contains or equals prefix, the widest first.
func (p *PrefixIndex) Around(prefix netip.Prefix, visit func(around netip.Prefix, tenant string)) {
	for _, bits := range p.lengths[family(prefix.Addr())] {
		if bits > prefix.Bits() {
			return
		}
		around, err := prefix.Addr().Prefix(bits)
		if err != nil {
			return
		}
		for _, tenant := range p.tenants[around] {
			visit(around, tenant)
		}
	}
}

// Empty reports whether the index has no prefixes.
func (p *PrefixIndex) Empty() bool { return len(p.tenants) == 0 }

// Host returns the prefix of a single address.
func Host(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

// Without returns the prefixes minus the holes, as few as possible, or nil if there are too many holes.
func Without(prefixes, holes []netip.Prefix) []netip.Prefix {
	if len(holes) > maxHoles {
		return nil
	}
	var builder netipx.IPSetBuilder
	for _, prefix := range prefixes {
		builder.AddPrefix(prefix)
	}
	for _, hole := range holes {
		builder.RemovePrefix(hole)
	}
	set, err := builder.IPSet()
	if err != nil {
		return nil
	}
	return set.Prefixes()
}

// Common returns the intersection of two sets of prefixes.
func Common(a, b []netip.Prefix) []netip.Prefix {
	var builder, other netipx.IPSetBuilder
	for _, prefix := range a {
		builder.AddPrefix(prefix)
	}
	for _, prefix := range b {
		other.AddPrefix(prefix)
	}
	set, err := other.IPSet()
	if err != nil {
		return nil
	}
	builder.Intersect(set)
	common, err := builder.IPSet()
	if err != nil {
		return nil
	}
	return common.Prefixes()
}

func family(address netip.Addr) int {
	if address.Is4() {
		return 0
	}
	return 1
}
