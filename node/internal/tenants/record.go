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

// Gone is what a node says it has seen of a record once it acts by nothing of it, whatever the generation.
const Gone int64 = -1

// Most entries of each kind in one record: more is a fault or an attack. etcd takes 1.5 MB for an object.
const (
	MostAddresses = 4096
	MostReleased  = 8192
	MostUses      = 4096
	MostSeen      = 20000
)

// Record is what one node tells all others. It alone writes it. A node that lost its record, or whose record is
// leaving, starts another one with another Instance: an old record never comes back to life.
type Record struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Generation grows when Addresses, Prefixes or Released change: what others confirm.
	Generation int64 `json:"generation"`
	// Revision grows with every writing, also when only Seen has changed.
	Revision int64 `json:"revision"`
	// Leaving: somebody who has to know said that the node is off. All it held counts as released.
	Leaving   bool       `json:"leaving,omitempty"`
	Addresses []Address  `json:"addresses,omitempty"`
	Prefixes  []Use      `json:"prefixes,omitempty"`
	Released  []Released `json:"released,omitempty"`
	// Seen: this node's flows are made from these generations (or later) of these records, by ID.
	Seen map[string]int64 `json:"seen,omitempty"`
}

// Address that a pod of the node has.
type Address struct {
	Address netip.Addr `json:"address"`
	Tenant  string     `json:"tenant"`
	Rail    string     `json:"rail,omitempty"`
	Owner   string     `json:"owner,omitempty"`
	// Pending: asked for, but not yet known to be nobody else's. No node lets it in, and its pod does not run.
	Pending bool `json:"pending,omitempty"`
}

// Use of a prefix: the node's flows may take every address in it for the tenant's.
type Use struct {
	Prefix netip.Prefix `json:"prefix"`
	Tenant string       `json:"tenant"`
}

// Released address: no pod of the tenant has it here since that generation of the record.
type Released struct {
	Address    netip.Addr `json:"address"`
	Tenant     string     `json:"tenant"`
	Generation int64      `json:"generation"`
}

// NewInstance is a random name for a record.
func NewInstance() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(random)
}

// ID of the record among all records of all nodes.
func (r *Record) ID() string { return r.Node + "." + r.Instance }

// Check refuses what no node writes. Records come from outside: a shared folder, an API server.
func (r *Record) Check() error {
	if err := CheckNode(r.Node); err != nil {
		return err
	}
	if !instance.MatchString(r.Instance) {
		return fmt.Errorf("instance %.40q is not 8 hexadecimal digits", r.Instance)
	}
	if r.Generation < 1 || r.Revision < 1 {
		return fmt.Errorf("generation %d with revision %d", r.Generation, r.Revision)
	}
	for _, count := range []struct {
		name       string
		have, most int
	}{
		{"addresses", len(r.Addresses), MostAddresses}, {"prefixes", len(r.Prefixes), MostUses},
		{"released addresses", len(r.Released), MostReleased}, {"nodes seen", len(r.Seen), MostSeen},
	} {
		if count.have > count.most {
			return fmt.Errorf("%d %s, at most %d", count.have, count.name, count.most)
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
			return fmt.Errorf("address %s was released in generation %d of %d", entry.Address, entry.Generation, r.Generation)
		}
	}
	for id, generation := range r.Seen {
		if len(id) > longestName+9 || len(validation.IsDNS1123Subdomain(id)) > 0 || generation < Gone {
			return fmt.Errorf("seen generation %d of record %.80q", generation, id)
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
		return fmt.Errorf("rail %.80q of address %s", a.Rail, a.Address)
	}
	if len(a.Owner) > longestOwner || a.Owner != "" && !printable.MatchString(a.Owner) {
		return fmt.Errorf("owner %.80q of address %s", a.Owner, a.Address)
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
		return fmt.Errorf("%.80q is not a prefix like 10.1.0.0/16 or fd00:1::/64", prefix)
	}
	return nil
}

// CheckAddress refuses what no interface of a pod can have as its own on a routed rail.
func CheckAddress(address netip.Addr) error {
	if !address.IsValid() || address.Zone() != "" || address.Is4In6() || !address.IsGlobalUnicast() {
		return fmt.Errorf("%.80q is not an address that a pod can have", address)
	}
	return nil
}

// CheckClaim refuses a claim that no record could carry.
func CheckClaim(claim Claim) error {
	if err := CheckTenant(claim.Tenant); err != nil {
		return err
	}
	if len(claim.Addresses) == 0 {
		return fmt.Errorf("a claim of no address")
	}
	for _, address := range claim.Addresses {
		entry := Address{Address: address, Tenant: claim.Tenant, Rail: claim.Rail, Owner: claim.Owner}
		if err := entry.check(); err != nil {
			return err
		}
	}
	return nil
}

// Sort puts the entries into the one order that they are written in.
func (r *Record) Sort() {
	slices.SortFunc(r.Addresses, func(a, b Address) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(r.Prefixes, func(a, b Use) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Tenant, b.Tenant))
	})
	slices.SortFunc(r.Released, func(a, b Released) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Tenant, b.Tenant))
	})
}
