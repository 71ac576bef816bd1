package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
)

// The schemas in schema/ describe the output of the verbs, and testdata/railwrightd/ has a sample of each. Both are
// generated here: `go test ./cmd/railwrightd -run Schemas -write`.
const (
	schemaFolder = "../../../schema/"
	sampleFolder = "../../../testdata/railwrightd/"
)

var write = flag.Bool("write", false, "write the schemas and samples instead of comparing them")

type schema map[string]any

func TestSchemasAndSamplesMatchTheVerbs(t *testing.T) {
	for verb, test := range map[string]struct {
		schema schema
		print  func(*bytes.Buffer) error
	}{
		"list":   {messageSchema(t, sampleList), func(out *bytes.Buffer) error { return printJSON(out, sampleList) }},
		"status": {messageSchema(t, sampleStatus), func(out *bytes.Buffer) error { return printJSON(out, sampleStatus) }},
		"flows": {
			schema{"type": "array", "items": structSchema(t, reflect.TypeFor[cachedFlow]())},
			func(out *bytes.Buffer) error { return printFlowsJSON(out, sampleFlows) },
		},
	} {
		test.schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		test.schema["title"] = "Output of `railwrightd " + verb + " --json`"
		var described, printed, sample bytes.Buffer
		encoder := json.NewEncoder(&described)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(test.schema); err != nil {
			t.Fatal(err)
		}
		if err := test.print(&printed); err != nil {
			t.Fatal(err)
		}
		// protojson varies its spaces, so the sample is indented again.
		if err := json.Indent(&sample, printed.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		compareOrWrite(t, schemaFolder+"railwrightd-"+verb+".schema.json", described.Bytes())
		compareOrWrite(t, sampleFolder+verb+".json", sample.Bytes())
	}
}

// compareOrWrite compares a file with the content, or writes it.
func compareOrWrite(t *testing.T, file string, content []byte) {
	t.Helper()
	if *write {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(found, content) {
		t.Errorf("%s differs from the verb's output (%v): go test ./cmd/railwrightd -run Schemas -write", file, err)
	}
}

// messageSchema returns the schema of a message as protojson writes it, with every field present.
func messageSchema(t *testing.T, message proto.Message) schema {
	t.Helper()
	return objectSchema(t, message.ProtoReflect().Descriptor())
}

func objectSchema(t *testing.T, message protoreflect.MessageDescriptor) schema {
	properties := schema{}
	for number := range message.Fields().Len() {
		field := message.Fields().Get(number)
		properties[string(field.Name())] = fieldSchema(t, field)
	}
	return schema{"type": "object", "properties": properties, "required": slices.Sorted(maps.Keys(properties))}
}

func fieldSchema(t *testing.T, field protoreflect.FieldDescriptor) schema {
	switch {
	case field.IsMap() && field.Name() == "dropped":
		return schema{
			"type": "object", "propertyNames": schema{"enum": dropReasons()}, "additionalProperties": valueSchema(t, field.MapValue()),
		}
	case field.IsList():
		return schema{"type": "array", "items": valueSchema(t, field)}
	}
	return valueSchema(t, field)
}

func valueSchema(t *testing.T, field protoreflect.FieldDescriptor) schema {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return objectSchema(t, field.Message())
	case protoreflect.EnumKind:
		var names []string
		for number := range field.Enum().Values().Len() {
			names = append(names, string(field.Enum().Values().Get(number).Name()))
		}
		return schema{"enum": names}
	case protoreflect.BoolKind:
		return schema{"type": "boolean"}
	case protoreflect.StringKind:
		return schema{"type": "string"}
	case protoreflect.Uint32Kind:
		return schema{"type": "integer", "minimum": 0, "maximum": 1<<32 - 1}
	case protoreflect.Uint64Kind:
		// As a string, because JavaScript has no 64-bit integers.
		return schema{"type": "string", "pattern": "^[0-9]{1,20}$"}
	}
	t.Fatalf("no schema for %s of kind %s", field.FullName(), field.Kind())
	return nil
}

func dropReasons() []string {
	var reasons []string
	for reason := plan.Reason(0); reason.String() != "unknown"; reason++ {
		if reason.Drops() {
			reasons = append(reasons, reason.String())
		}
	}
	return reasons
}

// structSchema returns the schema of a struct of plain fields as encoding/json writes it.
func structSchema(t *testing.T, structType reflect.Type) schema {
	t.Helper()
	kinds := map[reflect.Kind]schema{
		reflect.String: {"type": "string"}, reflect.Bool: {"type": "boolean"}, reflect.Uint64: {"type": "integer", "minimum": 0},
		reflect.Pointer: {"type": []string{"number", "null"}},
	}
	properties, required := schema{}, []string{}
	for _, field := range reflect.VisibleFields(structType) {
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || kinds[field.Type.Kind()] == nil {
			t.Fatalf("no schema for %s.%s", structType, field.Name)
		}
		properties[name] = kinds[field.Type.Kind()]
		if option == "" {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return schema{"type": "object", "properties": properties, "required": required}
}

var sampleList = &nodev1.ListReply{Attached: []*nodev1.Attached{
	{
		Key:   &nodev1.Key{Network: "tenant-a/rail0", ContainerId: "c0ffee", Interface: "net1"},
		Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
		Pod:   &nodev1.Pod{Namespace: "tenant-a", Name: "trainer-0", Uid: "0f9d-11"},
		Rail:  "rail0", Tenant: "ns:tenant-a", HostInterface: "pf0vf2", Mac: "02:00:00:00:01:10",
		Addresses: []string{"10.1.0.5", "fd00:1::5"}, DeviceId: "0000:01:00.2", FlowsWanted: 19, FlowsInstalled: 19,
		Advertised: true, Netns: "/var/run/netns/cni-7f", Gateways: []string{"10.1.0.1", "fe80::1"},
		OpenTenants: []string{"ns:tenant-b"}, GatewayMac: "02:01:00:00:00:00", Counted: true,
		Dropped: map[string]uint64{plan.DropSpoofed.String(): 3, plan.DropOtherTenant.String(): 1<<64 - 1},
	},
	// The bridge could not be read, and optional fields are missing.
	{
		Key: &nodev1.Key{Network: "rail1", ContainerId: "c0ffee", Interface: "net2"}, Parts: []nodev1.Part{nodev1.Part_PART_FLOWS},
		Pod: &nodev1.Pod{Namespace: "tenant-a", Name: "trainer-0"}, Rail: "rail1", Tenant: "ns:tenant-a", HostInterface: "veth2",
		Mac: "02:00:00:00:02:10", Addresses: []string{"10.2.0.5"}, FlowsWanted: 12,
	},
}}

var sampleStatus = &nodev1.StatusReply{
	Rails: []*nodev1.RailStatus{
		{
			Rail: "rail0", SwitchReady: true, UplinkUp: true, SessionEstablished: true, Prefixes: []string{"10.1.0.0/16", "fd00:1::/32"},
			Dropped: map[string]uint64{plan.DropSpoofed.String(): 3, plan.DropNoLeaf.String(): 0},
		},
		{Rail: "rail1", Problems: []string{"Open vSwitch has no bridge br-rail1"}, Prefixes: []string{"10.2.0.0/16"}},
	},
	Problems: []string{"cannot store attachments: no space left on device"},
	Notes:    []string{"record of node-9 cannot be parsed"},
}

var sampleFlows = []openvswitch.CachedFlow{
	{
		InPort: "pf0vf2", Offloaded: true, Layer: "tc", Packets: 90, Bytes: 8820, UsedSeconds: 0.25,
		Match: "eth_type(0x0800),ipv4(src=10.1.0.5)", Actions: "3",
	},
	{
		InPort: "veth2", Layer: "ovs", Reason: "the userspace datapath forwards in software", UsedSeconds: -1,
		Match: "eth_type(0x0806)", Actions: "userspace(slow_path)",
	},
}
