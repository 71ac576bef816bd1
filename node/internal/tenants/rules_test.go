package tenants

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, text := range texts {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

func TestNamespaceIsATenantUnlessGrouped(t *testing.T) {
	rules := NewRules(Policy{Tenants: []Tenant{{Name: "red", Namespaces: []string{"a", "b"}}, {Name: "c"}}})
	for namespace, want := range map[string]string{"a": "red", "b": "red", "c": "ns:c", "red": "ns:red"} {
		if got, err := rules.TenantOf(namespace); err != nil || got != want {
			t.Errorf("tenant of %s: %q, %v; want %q", namespace, got, err, want)
		}
	}
	for _, name := range []string{"", "A", "a/b", "a b", "-a", "a'; drop", strings.Repeat("a", 64), "a\n"} {
		if got, err := rules.TenantOf(name); err == nil {
			t.Errorf("namespace %q has tenant %q", name, got)
		}
	}
}

func TestNamespaceInTwoTenantsBelongsToNeither(t *testing.T) {
	for name, policy := range map[string]Policy{
		"two tenants":     {Tenants: []Tenant{{Name: "red", Namespaces: []string{"a"}}, {Name: "blue", Namespaces: []string{"a"}}}},
		"a fault":         {Tenants: []Tenant{{Name: "red", Namespaces: []string{"a"}, Fault: "prefix 10.1"}}},
		"a wrong prefix":  {Tenants: []Tenant{{Name: "red", Namespaces: []string{"a"}, Prefixes: prefixes("0.0.0.0/0")}}},
		"the same tenant": {Tenants: []Tenant{{Name: "red"}, {Name: "red", Namespaces: []string{"a"}}}},
	} {
		rules := NewRules(policy)
		if got, err := rules.TenantOf("a"); !errors.Is(err, ErrNoTenant) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if len(rules.Problems()) == 0 {
			t.Errorf("%s: no problem is reported", name)
		}
	}
}

func TestOverlapBelongsToNobody(t *testing.T) {
	rules := NewRules(Policy{Tenants: []Tenant{
		{Name: "red", Prefixes: prefixes("10.0.0.0/8", "10.1.0.0/16", "fd00::/48")},
		{Name: "blue", Prefixes: prefixes("10.1.2.0/24", "10.9.0.0/16")},
		{Name: "green", Prefixes: prefixes("fd00::/48")},
	}})
	for address, want := range map[string]string{
		"10.2.0.1": "red", "10.1.0.1": "red", "10.1.2.1": "", "10.9.9.9": "", "11.0.0.1": "", "fd00::1": "",
	} {
		var owners []string
		for _, tenant := range []string{"red", "blue", "green"} {
			members, _ := rules.Prefixes(tenant)
			for _, prefix := range members {
				if prefix.Contains(netip.MustParseAddr(address)) {
					owners = append(owners, tenant)
				}
			}
		}
		if got := strings.Join(owners, "+"); got != want {
			t.Errorf("%s belongs to %q, want %q", address, got, want)
		}
	}
	if members, declared := rules.Prefixes("green"); !declared || len(members) > 0 {
		t.Errorf("green: %v, %v", members, declared)
	}
	if got := len(rules.Problems()); got != 4 {
		t.Errorf("%d problems: %q", got, rules.Problems())
	}
	if owners := rules.Owners(netip.MustParseAddr("10.1.2.3")); !slices.Equal(owners, []string{"red", "blue"}) {
		t.Errorf("owners %v", owners)
	}
}

// TestPrefixesNeverOverlap draws policies at random. No address may have two tenants or a tenant that did not declare
// it.
func TestPrefixesNeverOverlap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var policy Policy
		for _, name := range []string{"red", "blue", "green"} {
			tenant := Tenant{Name: name}
			for range random.IntN(4) {
				address := netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(random.IntN(4)), 0})
				tenant.Prefixes = append(tenant.Prefixes, netip.PrefixFrom(address, 8+random.IntN(18)).Masked())
			}
			policy.Tenants = append(policy.Tenants, tenant)
		}
		rules := NewRules(policy)
		for range 50 {
			address := netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(random.IntN(4)), byte(random.IntN(256))})
			var declared, members []string
			for _, tenant := range policy.Tenants {
				if covers(tenant.Prefixes, address) {
					declared = append(declared, tenant.Name)
				}
				if prefixes, _ := rules.Prefixes(tenant.Name); covers(prefixes, address) {
					members = append(members, tenant.Name)
				}
			}
			if len(declared) != 1 {
				declared = nil
			}
			if !slices.Equal(declared, members) {
				t.Fatalf("%s belongs to %v, want %v, by %v", address, members, declared, policy)
			}
		}
	}
}

func covers(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

func TestPeeringsOpenBothWays(t *testing.T) {
	rules := NewRules(Policy{Peerings: []Peering{
		{A: "red", B: "ns:a"}, {A: "red", B: "red"}, {A: "red", B: "not a name"}, {A: "red", B: "blue"}, {A: "red", B: "green", Fault: "expired"},
	}})
	if got := rules.Peers("red"); !slices.Equal(got, []string{"blue", "ns:a"}) {
		t.Errorf("peers of red: %v", got)
	}
	if got := rules.Peers("ns:a"); !slices.Equal(got, []string{"red"}) {
		t.Errorf("peers of ns:a: %v", got)
	}
	if got := len(rules.Problems()); got != 3 {
		t.Errorf("%d problems: %v", got, rules.Problems())
	}
}

func TestTooManyHolesRemoveThePrefix(t *testing.T) {
	var holes []netip.Prefix
	for i := range maxHoles + 1 {
		holes = append(holes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)}), 32))
	}
	if left := Without(prefixes("10.0.0.0/8"), holes); len(left) > 0 {
		t.Errorf("%v", left)
	}
	if left := Without(prefixes("10.0.0.0/30"), holes[:2]); !slices.Equal(left, prefixes("10.0.0.2/31")) {
		t.Errorf("%v", left)
	}
}
