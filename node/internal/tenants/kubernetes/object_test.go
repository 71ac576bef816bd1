package kubernetes

import (
	"net/netip"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"railwright/node/internal/tenants"
)

// TestObjectRoundTrip also checks that objects with missing or additional parts are refused.
func TestObjectRoundTrip(t *testing.T) {
	t.Parallel()
	original := &tenants.Record{
		Node: "node-1", Instance: "0a1b2c3d", Generation: 3, Revision: 7,
		Addresses: []tenants.Address{
			{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "red", Rail: "rail0", Owner: "owner"},
			{Address: netip.MustParseAddr("fd00::2"), Tenant: "red", Rail: "rail0", Owner: "owner", Pending: true},
		},
		Prefixes: []tenants.Use{{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Tenant: "red"}},
		Released: []tenants.Released{{Address: netip.MustParseAddr("10.1.0.9"), Tenant: "blue", Generation: 2}},
		Seen:     map[string]int64{"node-2.00000001": 4},
	}
	made := func() *unstructured.Unstructured {
		object := newObject("node-1", "some-uid")
		object.SetName(original.ID())
		if err := fill(object, original); err != nil {
			t.Fatal(err)
		}
		return object
	}
	if found, err := record(made()); err != nil || !reflect.DeepEqual(found, original) {
		t.Errorf("got %+v, %v", found, err)
	}
	for name, change := range map[string]func(map[string]any){
		"another's name":         func(object map[string]any) { object["metadata"].(map[string]any)["name"] = "node-2.0a1b2c3d" },
		"no spec":                func(object map[string]any) { delete(object, "spec") },
		"unknown field":          func(object map[string]any) { object["spec"].(map[string]any)["x"] = int64(1) },
		"text for a number":      func(object map[string]any) { object["spec"].(map[string]any)["revision"] = "7" },
		"duplicate address":      func(object map[string]any) { twice(object["spec"].(map[string]any)) },
		"status of another type": func(object map[string]any) { object["status"] = []any{"seen"} },
	} {
		object := made()
		change(object.Object)
		if found, err := record(object); err == nil {
			t.Errorf("%s: parsed as %+v", name, found)
		}
	}
}

func twice(spec map[string]any) {
	addresses := spec["addresses"].([]any)
	spec["addresses"] = append(addresses, addresses[0])
}
