package tenants

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Rules are a policy made ready to be asked. Pure; never changed once made.
type Rules struct {
	namespaces map[string]string
	// disputed namespaces, and why they belong to nobody.
	disputed map[string]string
	// declared prefixes of a tenant as written; members: less what overlaps with another tenant's.
	declared map[string][]netip.Prefix
	members  map[string][]netip.Prefix
	index    PrefixIndex
	peers    map[string][]string
	problems []string
	faults   []Fault
}

// Fault of a Tenant, which is not heeded, or not in all.
type Fault struct{ Tenant, Why string }

// NewRules of a policy. What contradicts itself in it is nobody's, and a problem.
func NewRules(policy Policy) *Rules {
	rules := &Rules{
		namespaces: map[string]string{}, disputed: map[string]string{},
		declared: map[string][]netip.Prefix{}, members: map[string][]netip.Prefix{}, peers: map[string][]string{},
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
			rules.problems = append(rules.problems, "a peering is not heeded: "+fault)
			continue
		}
		rules.open(peering.A, peering.B)
		rules.open(peering.B, peering.A)
	}
	return rules
}

func (r *Rules) addTenant(tenant Tenant) {
	fault := tenant.Fault
	if err := tenant.Check(); fault == "" && err != nil {
		fault = err.Error()
	}
	if _, twice := r.declared[tenant.Name]; twice && fault == "" {
		fault = "it is there twice"
	}
	if fault != "" {
		r.problem(fmt.Sprintf("tenant %.80q is not heeded: %s", tenant.Name, fault), tenant.Name)
		for _, namespace := range tenant.Namespaces {
			r.disputed[namespace] = fmt.Sprintf("its tenant %.80q is not heeded: %s", tenant.Name, fault)
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

// disjoin takes from each tenant's prefixes what another's overlap: that part is nobody's.
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
					r.problem(fmt.Sprintf("%s of tenant %s lies in %s of tenant %s: it is neither's", prefix, tenant, around, other),
						tenant, other)
				}
			})
		}
	}
	for tenant, prefixes := range r.declared {
		r.members[tenant] = Without(prefixes, holes[tenant])
	}
}

func (r *Rules) open(tenant, to string) {
	if !slices.Contains(r.peers[tenant], to) {
		r.peers[tenant] = append(r.peers[tenant], to)
		slices.Sort(r.peers[tenant])
	}
}

// TenantOf a namespace, or why nobody can say.
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
	return NamespaceTenant(namespace), nil
}

// Prefixes of a tenant that are its own alone; ok says whether it has declared any.
func (r *Rules) Prefixes(tenant string) (members []netip.Prefix, ok bool) {
	return r.members[tenant], len(r.declared[tenant]) > 0
}

// Owners are the tenants in whose prefixes the address lies.
func (r *Rules) Owners(address netip.Addr) []string {
	var owners []string
	r.index.Around(Host(address), func(_ netip.Prefix, tenant string) {
		if !slices.Contains(owners, tenant) {
			owners = append(owners, tenant)
		}
	})
	return owners
}

// Peers of a tenant, sorted.
func (r *Rules) Peers(tenant string) []string { return r.peers[tenant] }

func (r *Rules) problem(reason string, concerned ...string) {
	r.problems = append(r.problems, reason)
	for _, tenant := range concerned {
		r.faults = append(r.faults, Fault{tenant, reason})
	}
}

// Faults of single Tenants.
func (r *Rules) Faults() []Fault { return r.faults }

// Problems of the policy, one sentence each.
func (r *Rules) Problems() []string { return r.problems }
