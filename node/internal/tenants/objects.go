package tenants

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Kind is a kind of object in the directory's store.
type Kind string

// The kinds of objects. Members are in spaces, one for each tenant; the others are in the space "".
const (
	KindClaim   Kind = "Claim"
	KindMembers Kind = "Members"
	KindNode    Kind = "RailNode"
	KindEpoch   Kind = "RailEpoch"
)

// EpochName is the name of the only object of the kind RailEpoch.
const EpochName = "epoch"

// Object is an object of the store. The store looks at nothing in Spec.
type Object struct {
	Kind Kind `json:"kind"`
	// Space is the tenant whose members it holds, as in Claim.Tenant, or "".
	Space string `json:"space,omitempty"`
	Name  string `json:"name"`
	// UID identifies the object among those that ever had its name, and Version its content. Versions of all objects
	// grow with every write to the store. The store sets both.
	UID     string `json:"uid,omitempty"`
	Version uint64 `json:"version,omitempty"`
	// Off is written by whoever knows that the machine of a RailNode is off: an administrator, or who saw the
	// out-of-service taint on the Node with this UID. It counts if it equals the RailNode's NodeUID. Only a RailNode has it.
	Off string `json:"off,omitempty"`
	// Spec is a ClaimSpec, MembersSpec, NodeSpec or EpochSpec in JSON. Fields that this version does not know are ignored, and
	// kept by Merge.
	Spec json.RawMessage `json:"spec"`
}

// ClaimSpec is the spec of a Claim: an address that a node has for a pod of a tenant. Its name is ClaimName. Only the node
// in it writes and deletes it, and nobody watches it. It has no owner reference, so that nothing deletes it with the Node.
type ClaimSpec struct {
	Address netip.Addr `json:"address"`
	Tenant  string     `json:"tenant"`
	// Node and Instance name the RailNode of the holder.
	Node     string `json:"node"`
	Instance string `json:"instance"`
	Rail     string `json:"rail,omitempty"`
	// Owner is the key of the pod's attachment on that node.
	Owner string `json:"owner,omitempty"`
}

// MembersSpec is the spec of a Members object: the addresses of a tenant's pods on a node. Its name is the RailNode's. Nodes with
// pods of the tenant or of its peers watch the space.
type MembersSpec struct {
	Addresses []netip.Addr `json:"addresses"`
	// Epoch is the epoch in which it was written. One of another epoch may be older than what its machine holds.
	Epoch string `json:"epoch,omitempty"`
}

// NodeSpec is the spec of a RailNode: a machine with a state folder. Its name is NodeName. The machine writes it before its
// first claim and when it changes. It outlives the Node: its claims and members stay held until it is off.
type NodeSpec struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// NodeUID is the UID of the Node of this machine. A Node of the same name with another UID says nothing about it.
	NodeUID string `json:"nodeUID,omitempty"`
	// Machine and Boot are the machine's ID and its boot ID.
	Machine string `json:"machine,omitempty"`
	Boot    string `json:"boot,omitempty"`
	// Epoch is the last epoch in which the machine has published all that it holds.
	Epoch string `json:"epoch,omitempty"`
}

// EpochSpec is the spec of the RailEpoch. An administrator writes a new one after the store was restored from a backup: the
// objects of a machine that is silent may be older than what it holds.
type EpochSpec struct {
	// ID differs from those of all earlier epochs.
	ID string `json:"id"`
	// Nodes names the Nodes or RailNodes that must publish in this epoch even if the store does not list them: those that
	// joined after the backup.
	Nodes []string `json:"nodes,omitempty"`
}

// ClaimName returns the name of an address's claim. Addresses are unique over all rails: each node names its rails itself,
// and leaves route between them.
func ClaimName(address netip.Addr) string {
	if address.Is4() {
		return strings.ReplaceAll(address.String(), ".", "-")
	}
	bytes := address.As16()
	return hex.EncodeToString(bytes[:])
}

// NodeName returns the name of a machine's RailNode and of its Members objects.
func NodeName(node, instance string) string { return node + "." + instance }

// NewID returns a random instance or epoch.
func NewID() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // crypto/rand never fails: it ends the program instead
	return hex.EncodeToString(random)
}

// Decode parses and checks the spec of an object. An error concerns this object alone.
func Decode[Spec interface{ check(Object) error }](object Object) (spec Spec, err error) {
	if err := json.Unmarshal(object.Spec, &spec); err != nil {
		return spec, fmt.Errorf("%s %.80q: %w", object.Kind, object.Name, err)
	}
	if err := spec.check(object); err != nil {
		return spec, fmt.Errorf("%s %.80q: %w", object.Kind, object.Name, err)
	}
	return spec, nil
}

// Merge returns the spec in JSON, with the fields of an earlier spec that this version does not know.
func Merge(earlier json.RawMessage, spec any) json.RawMessage {
	content, err := json.Marshal(spec)
	if err != nil {
		panic(err) // a spec has only texts and addresses
	}
	var merged, ours map[string]json.RawMessage
	if json.Unmarshal(earlier, &merged) != nil || json.Unmarshal(content, &ours) != nil || merged == nil {
		return content
	}
	if kind := reflect.TypeOf(spec); kind.Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(kind) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			delete(merged, name)
		}
	}
	maps.Copy(merged, ours)
	if content, err = json.Marshal(merged); err != nil {
		panic(err)
	}
	return content
}

// IsOff reports whether the machine of a RailNode is known to be off.
func (s NodeSpec) IsOff(object Object) bool { return object.Off != "" && object.Off == s.NodeUID }

func (s ClaimSpec) check(object Object) error {
	if err := CheckAddress(s.Address); err != nil {
		return err
	}
	if object.Name != ClaimName(s.Address) {
		return fmt.Errorf("name must be %s", ClaimName(s.Address))
	}
	if err := CheckTenant(s.Tenant); err != nil {
		return err
	}
	return checkOwner(s.Node, s.Instance)
}

func (s MembersSpec) check(Object) error {
	for _, address := range s.Addresses {
		if err := CheckAddress(address); err != nil {
			return err
		}
	}
	return nil
}

func (s NodeSpec) check(object Object) error {
	if err := checkOwner(s.Node, s.Instance); err != nil {
		return err
	}
	if object.Name != NodeName(s.Node, s.Instance) {
		return fmt.Errorf("name must be %s", NodeName(s.Node, s.Instance))
	}
	return nil
}

func (s EpochSpec) check(Object) error {
	if s.ID == "" || len(s.ID) > longestName || !printable.MatchString(s.ID) {
		return fmt.Errorf("id must be a short printable text, got %.80q", s.ID)
	}
	return nil
}

func checkOwner(node, id string) error {
	if err := CheckNode(node); err != nil {
		return err
	}
	if !instance.MatchString(id) {
		return fmt.Errorf("instance must be 8 hexadecimal digits, got %.40q", id)
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

// CheckClaim checks that the directory can hold the claim.
func CheckClaim(claim Claim) error {
	if err := CheckTenant(claim.Tenant); err != nil {
		return err
	}
	if len(claim.Addresses) == 0 {
		return fmt.Errorf("claim must have an address")
	}
	if slices.ContainsFunc(claim.Addresses, func(address netip.Addr) bool { return CheckAddress(address) != nil }) {
		return fmt.Errorf("addresses must be usable by a pod, got %v", claim.Addresses)
	}
	if len(claim.Rail) > longestRail || len(claim.Owner) > longestOwner || claim.Owner != "" && !printable.MatchString(claim.Owner) {
		return fmt.Errorf("rail and owner must be short printable texts, got %.80q and %.80q", claim.Rail, claim.Owner)
	}
	return nil
}

func checkMasked(prefix netip.Prefix) error {
	if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return fmt.Errorf("prefix must look like 10.1.0.0/16 or fd00:1::/64, got %.80q", prefix)
	}
	return nil
}
