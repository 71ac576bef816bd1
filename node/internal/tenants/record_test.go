package tenants

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func sample() *Record {
	return &Record{
		Node: "worker-1.example", Instance: "0123abcd", Generation: 3, Revision: 5,
		Addresses: []Address{
			{Address: netip.MustParseAddr("10.1.0.1"), Tenant: "ns:a", Rail: "rail0", Owner: "net/c/net1"},
			{Address: netip.MustParseAddr("fd00::1"), Tenant: "red", Pending: true},
		},
		Prefixes: []Use{{Prefix: netip.MustParsePrefix("10.2.0.0/16"), Tenant: "red"}},
		Released: []Released{{Address: netip.MustParseAddr("10.1.0.2"), Tenant: "ns:a", Generation: 3}},
		Seen:     map[string]int64{"worker-1.example.0123abcd": 3, "worker-2.00000000": Gone},
	}
}

func TestRecordSurvivesJSON(t *testing.T) {
	content, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	read := &Record{}
	if err := UnmarshalStrict(content, read); err != nil {
		t.Fatal(err)
	}
	if err := read.Check(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, sample()) {
		t.Errorf("%+v", read)
	}
}

func TestInvalidRecordsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Record){
		"node":               func(r *Record) { r.Node = "../../etc" },
		"node, long":         func(r *Record) { r.Node = strings.Repeat("a", 300) },
		"instance":           func(r *Record) { r.Instance = "0123ABCD" },
		"generation":         func(r *Record) { r.Generation = 0 },
		"revision":           func(r *Record) { r.Revision = -1 },
		"multicast":          func(r *Record) { r.Addresses[0].Address = netip.MustParseAddr("224.0.0.1") },
		"loopback":           func(r *Record) { r.Addresses[0].Address = netip.MustParseAddr("127.0.0.1") },
		"mapped":             func(r *Record) { r.Addresses[0].Address = netip.MustParseAddr("::ffff:10.1.0.1") },
		"zone":               func(r *Record) { r.Addresses[1].Address = netip.MustParseAddr("fd00::1%eth0") },
		"link-local":         func(r *Record) { r.Addresses[1].Address = netip.MustParseAddr("fe80::1") },
		"twice":              func(r *Record) { r.Addresses[1].Address = r.Addresses[0].Address },
		"tenant":             func(r *Record) { r.Addresses[0].Tenant = "a,actions=output:1" },
		"tenant, empty":      func(r *Record) { r.Addresses[0].Tenant = "" },
		"rail":               func(r *Record) { r.Addresses[0].Rail = "a\nb" },
		"owner":              func(r *Record) { r.Addresses[0].Owner = strings.Repeat("a", 600) },
		"prefix":             func(r *Record) { r.Prefixes[0].Prefix = netip.MustParsePrefix("10.2.0.1/16") },
		"prefix of nobody":   func(r *Record) { r.Prefixes[0].Tenant = "$" },
		"released later":     func(r *Record) { r.Released[0].Generation = 4 },
		"released never":     func(r *Record) { r.Released[0].Generation = 0 },
		"released by nobody": func(r *Record) { r.Released[0].Tenant = "ns:" },
		"seen":               func(r *Record) { r.Seen["a b"] = 1 },
		"seen, below":        func(r *Record) { r.Seen["a.00000000"] = -2 },
		"addresses, more":    func(r *Record) { r.Addresses = make([]Address, MaxAddresses+1) },
		"released, more":     func(r *Record) { r.Released = make([]Released, MaxReleased+1) },
		"zero address":       func(r *Record) { r.Addresses[0].Address = netip.Addr{} },
	} {
		record := sample()
		spoil(record)
		if record.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzRecord checks that a file of the shared folder is refused or is a valid record, and never causes a panic.
func FuzzRecord(f *testing.F) {
	content, _ := json.Marshal(sample())
	f.Add(content)
	f.Add([]byte(`{"node":"a","instance":"00000000","generation":1,"revision":1,"seen":{"a":null}}`))
	f.Add([]byte(`{"addresses":[{"address":"10.1.0.1"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		record := &Record{}
		if UnmarshalStrict(content, record) != nil || record.Check() != nil {
			return
		}
		record.Sort()
		again, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		read := &Record{}
		if err := UnmarshalStrict(again, read); err != nil || read.Check() != nil {
			t.Fatalf("%s was accepted, but not %s: %v", content, again, err)
		}
	})
}

// FuzzPolicy checks the same for tenants.json.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(`{"tenants":[{"name":"red","namespaces":["a"],"prefixes":["10.1.0.0/16"]}],"peerings":[{"tenants":["red","ns:b"]}]}`))
	f.Add([]byte(`{"tenants":[{"name":"red","prefixes":["10.1.0.0/16"]},{"name":"blue","prefixes":["10.1.2.0/24","10.0.0.0/8"]}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		policy, err := ParsePolicy(content)
		if err != nil {
			return
		}
		rules := NewRules(*policy)
		for i, tenant := range policy.Tenants {
			for _, other := range policy.Tenants[i+1:] {
				prefixes, _ := rules.Prefixes(tenant.Name)
				others, _ := rules.Prefixes(other.Name)
				if common := Common(prefixes, others); len(common) > 0 {
					t.Fatalf("%s and %s both have %v", tenant.Name, other.Name, common)
				}
			}
		}
	})
}
