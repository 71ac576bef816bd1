package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"railwright/node/internal/tenants"
)

// WatchPolicy implements tenants.Store.
func (s *Store) WatchPolicy(ctx context.Context, heard func(tenants.Policy), lost func(error)) {
	places := [2]place{{prefix: custom, resource: "tenants"}, {prefix: custom, resource: "tenantpeerings"}}
	s.api.mirror(ctx, places, repeatAfter, func(groups, pairs map[string]item) {
		read := policy(groups, pairs)
		s.recordFaults(read, groups, pairs)
		heard(read)
	}, lost)
}

// policy returns the policy of the objects, in the order of their names.
func policy(groups, pairs map[string]item) (read tenants.Policy) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		read.Tenants = append(read.Tenants, tenant(groups[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		read.Peerings = append(read.Peerings, peering(pairs[name]))
	}
	return read
}

// tenant returns the tenant of an object, with its problem in Fault. Namespaces stay its own if only its prefixes cannot be
// read.
func tenant(object item) tenants.Tenant {
	var names struct {
		Namespaces []string `json:"namespaces"`
	}
	var limits struct {
		Prefixes []netip.Prefix `json:"prefixes"`
	}
	err := cmp.Or(decode(object.Spec, &names), decode(object.Spec, &limits))
	read := tenants.Tenant{Name: object.Metadata.Name, Namespaces: names.Namespaces, Prefixes: limits.Prefixes}
	if err == nil {
		err = read.Check()
	}
	if err != nil {
		read.Fault, read.Prefixes = err.Error(), nil
	}
	return read
}

// peering returns the peering of an object; an invalid one opens nothing.
func peering(object item) tenants.Peering {
	var text struct {
		Tenants []string `json:"tenants"`
	}
	if err := decode(object.Spec, &text); err != nil || len(text.Tenants) != 2 {
		return tenants.Peering{Fault: fmt.Sprintf("%.80q must name two tenants", object.Metadata.Name)}
	}
	return tenants.Peering{A: text.Tenants[0], B: text.Tenants[1], Made: object.Metadata.CreationTimestamp}
}
