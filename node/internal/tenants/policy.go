package tenants

import (
	"fmt"
	"net/netip"
	"time"
)

// Policy is configured by operators: the grouping of namespaces, the prefixes of tenants, and peerings.
type Policy struct {
	Tenants  []Tenant  `json:"tenants,omitempty"`
	Peerings []Peering `json:"peerings,omitempty"`
}

// Tenant groups namespaces, and may have its own prefixes. Its pods then have addresses only in them, and nodes do not
// need to know the single addresses.
type Tenant struct {
	Name       string         `json:"name"`
	Namespaces []string       `json:"namespaces,omitempty"`
	Prefixes   []netip.Prefix `json:"prefixes,omitempty"`
	// Fault explains why the tenant cannot be used. Its namespaces then belong to no tenant, and their pods do not
	// start.
	Fault string `json:"fault,omitempty"`
}

// Peering opens two tenants to each other in both directions.
type Peering struct {
	A string `json:"a"`
	B string `json:"b"`
	// Made is the time of the store's clock when it was created; it does not apply to a namespace that is younger. Zero means
	// unknown.
	Made time.Time `json:"made,omitzero"`
	// Fault explains why the peering has no effect although it can be parsed.
	Fault string `json:"fault,omitempty"`
}

// Limits of a policy.
const (
	MaxTenants    = 10000
	MaxNamespaces = 10000
	MaxPrefixes   = 64
	MaxPeerings   = 20000
)

// Shortest prefixes of a tenant: a mistake like 0.0.0.0/0 would take every address from all others.
const (
	shortestIPv4 = 8
	shortestIPv6 = 16
)

// Check checks that a tenant is valid.
func (t Tenant) Check() error {
	if err := checkSubdomain("tenant", t.Name); err != nil {
		return err
	}
	if len(t.Namespaces) > MaxNamespaces {
		return fmt.Errorf("namespaces must have at most %d entries, got %d", MaxNamespaces, len(t.Namespaces))
	}
	for _, namespace := range t.Namespaces {
		if err := CheckNamespace(namespace); err != nil {
			return err
		}
	}
	if len(t.Prefixes) > MaxPrefixes {
		return fmt.Errorf("prefixes must have at most %d entries, got %d", MaxPrefixes, len(t.Prefixes))
	}
	for _, prefix := range t.Prefixes {
		if err := CheckPrefix(prefix); err != nil {
			return err
		}
	}
	return nil
}

// CheckPrefix checks that a tenant can have the prefix.
func CheckPrefix(prefix netip.Prefix) error {
	if err := checkMasked(prefix); err != nil {
		return err
	}
	shortest := shortestIPv4
	if prefix.Addr().Is6() {
		shortest = shortestIPv6
	}
	if prefix.Bits() < shortest {
		return fmt.Errorf("prefix must be at least /%d, got %s", shortest, prefix)
	}
	if !prefix.Addr().IsGlobalUnicast() {
		return fmt.Errorf("prefix must contain unicast addresses, got %s", prefix)
	}
	return nil
}

// Check checks that a peering is valid.
func (p Peering) Check() error {
	if err := CheckTenant(p.A); err != nil {
		return err
	}
	if err := CheckTenant(p.B); err != nil {
		return err
	}
	if p.A == p.B {
		return fmt.Errorf("tenants of a peering must differ, got %s twice", p.A)
	}
	return nil
}
