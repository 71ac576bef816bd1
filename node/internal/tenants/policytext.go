package tenants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// LongestPolicy is the maximum size of a policy file in bytes.
const LongestPolicy = 4 << 20

// ParsePolicy parses a policy from JSON: {"tenants": [{"name", "namespaces", "prefixes"}], "peerings": [{"tenants": [a,
// b]}]}. Any error invalidates the whole file: half a policy would separate what belongs together.
func ParsePolicy(content []byte) (*Policy, error) {
	var text struct {
		Tenants []struct {
			Name       string         `json:"name"`
			Namespaces []string       `json:"namespaces"`
			Prefixes   []netip.Prefix `json:"prefixes"`
		} `json:"tenants"`
		Peerings []struct {
			Tenants []string `json:"tenants"`
		} `json:"peerings"`
	}
	if err := UnmarshalStrict(content, &text); err != nil {
		return nil, err
	}
	if len(text.Tenants) > MaxTenants || len(text.Peerings) > MaxPeerings {
		return nil, fmt.Errorf("policy must have at most %d tenants and %d peerings, got %d and %d",
			MaxTenants, MaxPeerings, len(text.Tenants), len(text.Peerings))
	}
	policy := &Policy{}
	names := map[string]bool{}
	for _, entry := range text.Tenants {
		tenant := Tenant{Name: entry.Name, Namespaces: entry.Namespaces, Prefixes: entry.Prefixes}
		if err := tenant.Check(); err != nil {
			return nil, fmt.Errorf("tenant %.80q: %w", entry.Name, err)
		}
		if names[entry.Name] {
			return nil, fmt.Errorf("tenant %s is listed twice", entry.Name)
		}
		names[entry.Name] = true
		policy.Tenants = append(policy.Tenants, tenant)
	}
	for _, entry := range text.Peerings {
		if len(entry.Tenants) != 2 {
			return nil, fmt.Errorf("peering must have 2 tenants, got %d", len(entry.Tenants))
		}
		peering := Peering{A: entry.Tenants[0], B: entry.Tenants[1]}
		if err := peering.Check(); err != nil {
			return nil, fmt.Errorf("peering: %w", err)
		}
		policy.Peerings = append(policy.Peerings, peering)
	}
	return policy, nil
}

// UnmarshalStrict parses JSON. It refuses unknown fields and data after the value.
func UnmarshalStrict(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("unexpected data after the JSON value")
	}
	return nil
}
