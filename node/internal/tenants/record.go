package tenants

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Gone is published in Seen by a node that no longer uses any generation of a record.
const Gone int64 = -1

// Maximum number of entries of each kind in a record. More is a bug or an attack; etcd accepts 1.5 MB for an object.
const (
	MaxAddresses = 4096
	MaxReleased  = 8192
	MaxUses      = 4096
	MaxSeen      = 20000
)

// Record is the state that a node publishes to all others. Only that node writes it. A node that lost its record, or
// whose record is leaving, starts another one with a new Instance, so that an old record never comes back.
type Record struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Generation grows when Addresses, Prefixes or Released change. Other nodes confirm it.
	Generation int64 `json:"generation"`
	// Revision grows with every write, also if only Seen changed.
	Revision int64 `json:"revision"`
	// Leaving means that the node was declared off. All its addresses count as released.
	Leaving   bool       `json:"leaving,omitempty"`
	Addresses []Address  `json:"addresses,omitempty"`
	Prefixes  []Use      `json:"prefixes,omitempty"`
	Released  []Released `json:"released,omitempty"`
	// Seen maps record IDs to the generations, or later ones, that this node's flows implement.
	Seen map[string]int64 `json:"seen,omitempty"`
}

// Address is the address of a pod on the node.
type Address struct {
	Address netip.Addr `json:"address"`
	Tenant  string     `json:"tenant"`
	Rail    string     `json:"rail,omitempty"`
	Owner   string     `json:"owner,omitempty"`
	// Pending means that the claim is not granted yet. No node admits the address, and its pod does not run.
	Pending bool `json:"pending,omitempty"`
}

// Use is a prefix that the node's flows may take for the tenant's.
type Use struct {
	Prefix netip.Prefix `json:"prefix"`
	Tenant string       `json:"tenant"`
}

// Released is an address that no pod of the tenant has on the node since that generation of the record.
type Released struct {
	Address    netip.Addr `json:"address"`
	Tenant     string     `json:"tenant"`
	Generation int64      `json:"generation"`
}

// NewInstance returns a random instance for a record.
func NewInstance() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // crypto/rand never fails: it ends the program instead
	return hex.EncodeToString(random)
}

// ID returns the record's name among the records of all nodes.
func (r *Record) ID() string { return r.Node + "." + r.Instance }

// Check checks that a node could have written the record. Records come from outside: a shared folder or an API server.
func (r *Record) Check() error {
	if err := CheckNode(r.Node); err != nil {
		return err
	}
	if !instance.MatchString(r.Instance) {
		return fmt.Errorf("instance must be 8 hexadecimal digits, got %.40q", r.Instance)
	}
	if r.Generation < 1 || r.Revision < 1 {
		return fmt.Errorf("generation and revision must be at least 1, got %d and %d", r.Generation, r.Revision)
	}
	for _, count := range []struct {
		name        string
		have, limit int
	}{
		{"addresses", len(r.Addresses), MaxAddresses}, {"prefixes", len(r.Prefixes), MaxUses},
		{"released addresses", len(r.Released), MaxReleased}, {"nodes seen", len(r.Seen), MaxSeen},
	} {
		if count.have > count.limit {
			return fmt.Errorf("%s must have at most %d entries, got %d", count.name, count.limit, count.have)
		}
	}
	return r.checkEntries()
}

func (r *Record) checkEntries() error {
	held := make(map[netip.Addr]bool, len(r.Addresses))
	for _, entry := range r.Addresses {
		if err := entry.check(); err != nil {
			return err
		}
		if held[entry.Address] {
			return fmt.Errorf("address %s is listed twice", entry.Address)
		}
		held[entry.Address] = true
	}
	for _, entry := range r.Prefixes {
		if err := checkUse(entry); err != nil {
			return err
		}
	}
	for _, entry := range r.Released {
		if err := CheckAddress(entry.Address); err != nil {
			return err
		}
		if err := CheckTenant(entry.Tenant); err != nil {
			return err
		}
		if entry.Generation < 1 || entry.Generation > r.Generation {
			return fmt.Errorf("released generation of %s must be 1 to %d, got %d", entry.Address, r.Generation, entry.Generation)
		}
	}
	for id, generation := range r.Seen {
		if len(id) > longestName+9 || len(validation.IsDNS1123Subdomain(id)) > 0 || generation < Gone {
			return fmt.Errorf("seen must map record IDs to generations, got %d for %.80q", generation, id)
		}
	}
	return nil
}

func (a Address) check() error {
	if err := CheckAddress(a.Address); err != nil {
		return err
	}
	if err := CheckTenant(a.Tenant); err != nil {
		return err
	}
	if len(a.Rail) > longestRail || a.Rail != "" && !printable.MatchString(a.Rail) {
		return fmt.Errorf("rail must be a short printable name, got %.80q for address %s", a.Rail, a.Address)
	}
	if len(a.Owner) > longestOwner || a.Owner != "" && !printable.MatchString(a.Owner) {
		return fmt.Errorf("owner must be a short printable key, got %.80q for address %s", a.Owner, a.Address)
	}
	return nil
}

func checkUse(use Use) error {
	if err := CheckTenant(use.Tenant); err != nil {
		return err
	}
	return checkMasked(use.Prefix)
}

func checkMasked(prefix netip.Prefix) error {
	if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return fmt.Errorf("prefix must look like 10.1.0.0/16 or fd00:1::/64, got %.80q", prefix)
	}
	return nil
}

// CheckAddress checks that a pod's interface on a routed rail can have the address.
func CheckAddress(address netip.Addr) error {
	if !address.IsValid() || address.Zone() != "" || address.Is4In6() || !address.IsGlobalUnicast() {
		return fmt.Errorf("address must be usable by a pod, got %.80q", address)
	}
	return nil
}

// CheckClaim checks that a record can hold the claim.
func CheckClaim(claim Claim) error {
	if err := CheckTenant(claim.Tenant); err != nil {
		return err
	}
	if len(claim.Addresses) == 0 {
		return fmt.Errorf("claim must have an address")
	}
	for _, address := range claim.Addresses {
		entry := Address{Address: address, Tenant: claim.Tenant, Rail: claim.Rail, Owner: claim.Owner}
		if err := entry.check(); err != nil {
			return err
		}
	}
	return nil
}

// Sort sorts the entries, so that equal records are written equally.
func (r *Record) Sort() {
	slices.SortFunc(r.Addresses, func(a, b Address) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(r.Prefixes, func(a, b Use) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Tenant, b.Tenant))
	})
	slices.SortFunc(r.Released, func(a, b Released) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Tenant, b.Tenant))
	})
}
