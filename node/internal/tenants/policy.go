package tenants

import (
	"fmt"
	"net/netip"
)

// Policy is what people decided: which namespaces belong together, which addresses are whose, who may talk to whom.
type Policy struct {
	Tenants  []Tenant  `json:"tenants,omitempty"`
	Peerings []Peering `json:"peerings,omitempty"`
}

// Tenant groups namespaces, and may have prefixes of its own: then its pods have addresses in them alone, and a node
// needs to know nothing of them one by one.
type Tenant struct {
	Name       string         `json:"name"`
	Namespaces []string       `json:"namespaces,omitempty"`
	Prefixes   []netip.Prefix `json:"prefixes,omitempty"`
	// Fault says why the tenant cannot be read. Its namespaces then belong to no tenant: their pods do not start.
	Fault string `json:"fault,omitempty"`
}

// Peering opens two tenants to each other, both directions.
type Peering struct {
	A string `json:"a"`
	B string `json:"b"`
	// Fault says why it opens nothing, though it can be read.
	Fault string `json:"fault,omitempty"`
}

// Most of each in a policy.
const (
	MostTenants    = 10000
	MostNamespaces = 10000
	MostPrefixes   = 64
	MostPeerings   = 20000
)

// shortest prefixes of a tenant: a slip of the hand like 0.0.0.0/0 would take every address from everybody.
const (
	shortestIPv4 = 8
	shortestIPv6 = 16
)

// Check refuses a tenant that cannot be meant.
func (t Tenant) Check() error {
	if err := checkSubdomain("tenant", t.Name); err != nil {
		return err
	}
	if len(t.Namespaces) > MostNamespaces {
		return fmt.Errorf("%d namespaces, at most %d", len(t.Namespaces), MostNamespaces)
	}
	for _, namespace := range t.Namespaces {
		if err := CheckNamespace(namespace); err != nil {
			return err
		}
	}
	if len(t.Prefixes) > MostPrefixes {
		return fmt.Errorf("%d prefixes, at most %d", len(t.Prefixes), MostPrefixes)
	}
	for _, prefix := range t.Prefixes {
		if err := CheckPrefix(prefix); err != nil {
			return err
		}
	}
	return nil
}

// CheckPrefix refuses what no tenant can have for itself.
func CheckPrefix(prefix netip.Prefix) error {
	if err := checkMasked(prefix); err != nil {
		return err
	}
	shortest := shortestIPv4
	if prefix.Addr().Is6() {
		shortest = shortestIPv6
	}
	if prefix.Bits() < shortest {
		return fmt.Errorf("prefix %s is shorter than /%d", prefix, shortest)
	}
	if !prefix.Addr().IsGlobalUnicast() {
		return fmt.Errorf("prefix %s is none of unicast addresses", prefix)
	}
	return nil
}

// Check refuses a peering that cannot be meant.
func (p Peering) Check() error {
	if err := CheckTenant(p.A); err != nil {
		return err
	}
	if err := CheckTenant(p.B); err != nil {
		return err
	}
	if p.A == p.B {
		return fmt.Errorf("tenant %s is open to itself anyway", p.A)
	}
	return nil
}
