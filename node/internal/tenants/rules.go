package tenants

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Rules is a policy prepared for queries. It is immutable and has no I/O.
type Rules struct {
	namespaces map[string]string
	// disputed maps namespaces that belong to no tenant to the reason.
	disputed map[string]string
	// declared holds the prefixes of a tenant as written, and members the same minus the overlaps with other tenants.
	declared map[string][]netip.Prefix
	members  map[string][]netip.Prefix
	index    PrefixIndex
	peers    map[string][]string
	// made holds when the latest peering of two tenants was created; zero means unknown.
	made     map[[2]string]time.Time
	problems []string
	faults   []Fault
}

// Fault is a problem of a Tenant, which is ignored at least in part.
type Fault struct{ Tenant, Reason string }

// NewRules returns the rules of a policy. Contradictory parts belong to nobody and are problems.
func NewRules(policy Policy) *Rules {
	rules := &Rules{
		namespaces: map[string]string{}, disputed: map[string]string{},
		declared: map[string][]netip.Prefix{}, members: map[string][]netip.Prefix{}, peers: map[string][]string{},
		made: map[[2]string]time.Time{},
	}
	for _, tenant := range policy.Tenants {
		rules.addTenant(tenant)
	}
	rules.disjoin()
	for _, peering := range policy.Peerings {
		fault := peering.Fault
		if err := peering.Check(); fault == "" && err != nil {
			fault = err.Error()
		}
		if fault != "" {
			rules.problems = append(rules.problems, "peering is ignored: "+fault)
			continue
		}
		rules.addPeer(peering.A, peering.B, peering.Made)
		rules.addPeer(peering.B, peering.A, peering.Made)
	}
	return rules
}

func (r *Rules) addTenant(tenant Tenant) {
	fault := tenant.Fault
	if err := tenant.Check(); fault == "" && err != nil {
		fault = err.Error()
	}
	if _, twice := r.declared[tenant.Name]; twice && fault == "" {
		fault = "it is listed twice"
	}
	if fault != "" {
		r.problem(fmt.Sprintf("tenant %.80q is ignored: %s", tenant.Name, fault), tenant.Name)
		for _, namespace := range tenant.Namespaces {
			r.disputed[namespace] = fmt.Sprintf("its tenant %.80q is ignored: %s", tenant.Name, fault)
		}
		return
	}
	for _, namespace := range tenant.Namespaces {
		if other, taken := r.namespaces[namespace]; taken && other != tenant.Name {
			reason := fmt.Sprintf("namespace %s is in two tenants, %s and %s", namespace, other, tenant.Name)
			r.problem(reason, other, tenant.Name)
			r.disputed[namespace] = reason
		}
		r.namespaces[namespace] = tenant.Name
	}
	r.declared[tenant.Name] = slices.Clone(tenant.Prefixes)
	for _, prefix := range tenant.Prefixes {
		r.index.Add(prefix, tenant.Name)
	}
}

// disjoin removes from each tenant's prefixes the overlaps with other tenants, which belong to nobody.
func (r *Rules) disjoin() {
	holes := map[string][]netip.Prefix{}
	for _, tenant := range slices.Sorted(maps.Keys(r.declared)) {
		for _, prefix := range r.declared[tenant] {
			r.index.Around(prefix, func(around netip.Prefix, other string) {
				if other == tenant {
					return
				}
				holes[tenant] = append(holes[tenant], prefix)
				holes[other] = append(holes[other], prefix)
				if around != prefix || other < tenant {
					r.problem(fmt.Sprintf("prefix %s of tenant %s is in %s of tenant %s; it belongs to neither", prefix, tenant, around, other),
						tenant, other)
				}
			})
		}
	}
	for tenant, prefixes := range r.declared {
		r.members[tenant] = Without(prefixes, holes[tenant])
	}
}

func (r *Rules) addPeer(tenant, to string, made time.Time) {
	if before, known := r.made[[2]string{tenant, to}]; !known || made.IsZero() || !before.IsZero() && made.After(before) {
		r.made[[2]string{tenant, to}] = made
	}
	if !slices.Contains(r.peers[tenant], to) {
		r.peers[tenant] = append(r.peers[tenant], to)
		slices.Sort(r.peers[tenant])
	}
}

// TenantOf returns the tenant of a namespace. The error explains why it has none.
func (r *Rules) TenantOf(namespace string) (string, error) {
	if err := CheckNamespace(namespace); err != nil {
		return "", err
	}
	if reason, disputed := r.disputed[namespace]; disputed {
		return "", fmt.Errorf("%w: %s", ErrNoTenant, reason)
	}
	if tenant, found := r.namespaces[namespace]; found {
		return tenant, nil
	}
	return NamespaceTenant(Namespace{Name: namespace}), nil
}

// Prefixes returns the prefixes that belong to the tenant only. ok reports whether it has declared any.
func (r *Rules) Prefixes(tenant string) (members []netip.Prefix, ok bool) {
	return r.members[tenant], len(r.declared[tenant]) > 0
}

// Owners returns the tenants whose prefixes contain the address.
func (r *Rules) Owners(address netip.Addr) []string {
	var owners []string
	r.index.Around(Host(address), func(_ netip.Prefix, tenant string) {
		if !slices.Contains(owners, tenant) {
			owners = append(owners, tenant)
		}
	})
	return owners
}

// Applies reports whether a peering of two tenants applies to a namespace of one of them. A later namespace with the same
// name is a different one.
func (r *Rules) Applies(a, b string, to Namespace) bool {
	made := r.made[[2]string{a, b}]
	return made.IsZero() || !made.Before(to.Made)
}

// Peers returns the tenants that are peered with the tenant, sorted.
func (r *Rules) Peers(tenant string) []string { return r.peers[tenant] }

func (r *Rules) problem(reason string, concerned ...string) {
	r.problems = append(r.problems, reason)
	for _, tenant := range concerned {
		r.faults = append(r.faults, Fault{tenant, reason})
	}
}

// Faults returns the problems of single Tenants.
func (r *Rules) Faults() []Fault { return r.faults }

// Problems returns the problems of the policy, a sentence each.
func (r *Rules) Problems() []string { return r.problems }
