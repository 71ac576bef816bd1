package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"railwright/node/internal/tenants"
)

// Group and version of the custom resources in deploy/crds.
const (
	group   = "network.railwright.dev"
	version = "v1alpha1"
	// finalizer keeps a record until no node uses it any more.
	finalizer = group + "/let-go"
)

var (
	nodeAddresses = schema.GroupVersionResource{Group: group, Version: version, Resource: "nodeaddresses"}
	tenantObjects = schema.GroupVersionResource{Group: group, Version: version, Resource: "tenants"}
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	peerings      = schema.GroupVersionResource{Group: group, Version: version, Resource: "tenantpeerings"}
)

// spec is the spec of a NodeAddresses object: the parts of a record that others confirm.
type spec struct {
	Node       string             `json:"node"`
	Instance   string             `json:"instance"`
	Generation int64              `json:"generation"`
	Revision   int64              `json:"revision"`
	Addresses  []tenants.Address  `json:"addresses,omitempty"`
	Prefixes   []tenants.Use      `json:"prefixes,omitempty"`
	Released   []tenants.Released `json:"released,omitempty"`
}

// status is its status. It is no subresource, because one write must contain both.
type status struct {
	Seen map[string]int64 `json:"seen,omitempty"`
}

// record returns the record of an object.
func record(object *unstructured.Unstructured) (*tenants.Record, error) {
	var held spec
	if err := part(object, "spec", &held); err != nil {
		return nil, err
	}
	var seen status
	if err := part(object, "status", &seen); err != nil {
		return nil, err
	}
	read := &tenants.Record{
		Node: held.Node, Instance: held.Instance, Generation: held.Generation, Revision: held.Revision,
		Leaving: object.GetDeletionTimestamp() != nil, Addresses: held.Addresses, Prefixes: held.Prefixes,
		Released: held.Released, Seen: seen.Seen,
	}
	if err := read.Check(); err != nil {
		return nil, err
	}
	if read.ID() != object.GetName() {
		return nil, fmt.Errorf("object has the record of %s", read.ID())
	}
	return read, nil
}

func part(object *unstructured.Unstructured, name string, into any) error {
	value, found := object.Object[name]
	if !found {
		return nil
	}
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := tenants.UnmarshalStrict(content, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// fill writes a record into an object and keeps its metadata.
func fill(object *unstructured.Unstructured, record *tenants.Record) error {
	for name, value := range map[string]any{
		"spec": spec{
			record.Node, record.Instance, record.Generation, record.Revision,
			record.Addresses, record.Prefixes, record.Released,
		},
		"status": status{record.Seen},
	} {
		content, err := json.Marshal(value)
		if err != nil {
			return err
		}
		var plain map[string]any
		if err := json.Unmarshal(content, &plain); err != nil {
			return err
		}
		object.Object[name] = plain
	}
	return nil
}

// newObject returns a new object for a record, owned by its Node.
func newObject(node string, uid types.UID) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(group + "/" + version)
	object.SetKind("NodeAddresses")
	object.SetFinalizers([]string{finalizer})
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}})
	return object
}

// tenant returns the tenant of an object, with its problem in Fault.
func tenant(object *unstructured.Unstructured) tenants.Tenant {
	read := tenants.Tenant{Name: object.GetName()}
	var text struct {
		Namespaces []string `json:"namespaces"`
		Prefixes   []string `json:"prefixes"`
	}
	if err := part(object, "spec", &text); err != nil {
		read.Fault = err.Error()
		return read
	}
	read.Namespaces = text.Namespaces
	for _, word := range text.Prefixes {
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			read.Fault = err.Error()
			return read
		}
		read.Prefixes = append(read.Prefixes, prefix)
	}
	if err := read.Check(); err != nil {
		read.Fault = err.Error()
	}
	return read
}

// peering returns the peering of an object; an invalid one opens nothing. A peering applies to the namespaces that
// existed when it was created: a later namespace with the same name is a different one.
func peering(object *unstructured.Unstructured, spaces map[string]*unstructured.Unstructured) tenants.Peering {
	var text struct {
		Tenants []string `json:"tenants"`
	}
	if err := part(object, "spec", &text); err != nil || len(text.Tenants) != 2 {
		return tenants.Peering{Fault: fmt.Sprintf("%.80q must name two tenants", object.GetName())}
	}
	read := tenants.Peering{A: text.Tenants[0], B: text.Tenants[1]}
	made := object.GetCreationTimestamp()
	for _, tenant := range text.Tenants {
		name, single := tenants.SingleNamespace(tenant)
		if !single {
			continue
		}
		space := spaces[name]
		if space == nil {
			read.Fault = fmt.Sprintf("%.80q names namespace %.80q, which does not exist", object.GetName(), name)
		} else if since := space.GetCreationTimestamp(); made.Before(&since) {
			read.Fault = fmt.Sprintf("%.80q is older than namespace %.80q (UID %.80q), so it was created for a different one; "+
				"to peer with this namespace, delete the peering and create it again", object.GetName(), name, space.GetUID())
		}
	}
	return read
}
