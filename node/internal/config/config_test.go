package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const small = `
rails:
- {name: rail0, bridge: br-rail0, uplink: p0, leaf: unnumbered, table: 210, prefixes: [10.1.0.0/16, "fd00::/48"]}
tenants: {kind: local}
`

const large = `
node: gpu-1
state_folder: /srv/railwright/
socket: /run/rw/d.sock
allowed_uids: [0, 990]
metrics: "[::1]:9000"
netns_folders: [/run/netns]
advertise_timeout: 500ms
forward_timeout: 1s
confirm_timeout: 3s
rails:
- name: rail0
  bridge: br0
  uplink: p0
  leaf: 192.0.2.1
  table: 210
  families: [ipv4]
  prefixes: [10.1.0.0/16, "fd00:1::/48"]
  keep_ttl: true
  max_prefixes: 100
- {name: rail1, bridge: br1, uplink: p1, leaf: "2001:db8::1", table: 211, prefixes: ["fd00:2::/48"]}
openvswitch: {database: "unix:/run/ovs/db.sock", management: /run/ovs}
frr: {backend: vty, bgp_socket: /run/frr2/bgpd.vty, asn: 65001}
tenants: {kind: folder, folder: /mnt/tenants}
`

func TestDefaultsAreFilledIn(t *testing.T) {
	config, err := Parse([]byte(small), Own{})
	if err != nil {
		t.Fatal(err)
	}
	rail := config.Rails[0]
	if rail.Leaf.IsValid() || !rail.IPv4 || !rail.IPv6 || rail.MaxPrefixes != 200 || rail.Table != 210 {
		t.Errorf("rail: %+v", rail)
	}
	if config.Socket != DefaultSocket || config.Health.String() != "127.0.0.1:9477" || config.Metrics.IsValid() || config.FRR.Backend != KernelTable ||
		config.AdvertiseTimeout != 2*time.Second || config.ForwardTimeout != 0 || len(config.AllowedUIDs) != 1 || config.AllowedUIDs[0] != 0 {
		t.Errorf("defaults: %+v", config)
	}
}

func TestAllFieldsAreRead(t *testing.T) {
	config, err := Parse([]byte(large), Own{Node: "gpu-9", Metrics: "[10.0.0.1]:9478"})
	if err != nil {
		t.Fatal(err)
	}
	rail := config.Rails[0]
	if rail.Leaf.String() != "192.0.2.1" || rail.IPv6 || !rail.KeepTTL || rail.MaxPrefixes != 100 {
		t.Errorf("rail: %+v", rail)
	}
	if rail.Allows(netip.MustParseAddr("10.2.0.1")) || rail.Carries(netip.MustParseAddr("fd00:1::1")) ||
		!rail.Allows(netip.MustParseAddr("10.1.2.3")) {
		t.Error("prefixes or families are wrong")
	}
	if second := config.Rails[1]; second.IPv4 || !second.IPv6 {
		t.Errorf("want the families of the prefixes: %+v", second)
	}
	if config.Node != "gpu-9" || config.StateFolder != "/srv/railwright" || config.OpenVSwitch.Database != "/run/ovs/db.sock" ||
		config.Metrics.String() != "10.0.0.1:9478" || config.Health.String() != "127.0.0.1:9477" ||
		config.FRR != (FRR{Vty, "/run/frr2/bgpd.vty", 65001}) || config.ConfirmTimeout != 3*time.Second ||
		config.Tenants != (Tenants{Kind: Folder, Folder: "/mnt/tenants"}) || config.AllowedUIDs[1] != 990 {
		t.Errorf("%+v", config)
	}
}

func TestErrorsNameTheValueAndTheNextStep(t *testing.T) {
	for _, wrong := range []struct{ old, changed, want, next string }{
		{"table: 210\n  families", "tabel: 210\n  families", `"rails[0].tabel"`, `did you mean "table"`},
		{"tenants:", "tennants:", `"tennants"`, `did you mean "tenants"`},
		{"backend: vty", "bakend: vty", `"frr.bakend"`, `did you mean "backend"`},
		{"name: rail0", "name: rail0\n  name: rail9", `key "name" already set`, ""},
		{"table: 210\n  families", "table: 254\n  families", "rails[0].table: must be an unused routing table", "got 254"},
		{"table: 210\n  families", "table: two\n  families", "must be a whole number", "got a string"},
		{"table: 211", "table: 210", "rails[1]: table 210 is already used by rails[0]", "each rail needs its own"},
		{"name: rail1", "name: rail0", "name rail0 is already used by rails[0]", "each rail needs its own"},
		{"uplink: p1", "uplink: br0", "interface br0 is already used by rails[0]", "each rail needs its own"},
		{"uplink: p1", `uplink: "p1;reboot"`, `rails[1].uplink: must be an interface name, got "p1;reboot"`, "`ip link` lists them"},
		{"bridge: br1", `bridge: "../x"`, `rails[1].bridge: must be an interface name, got "../x"`, "`ip link` lists them"},
		{"leaf: 192.0.2.1", "leaf: 224.0.0.5", `got "224.0.0.5"`, "unnumbered"},
		{"families: [ipv4]", "families: [inet]", `got "inet"`, "ipv4, ipv6 or both"},
		{"10.1.0.0/16", "10.1.0.1/16", "must not have host bits, got 10.1.0.1/16", "10.1.0.0/16"},
		{"10.1.0.0/16", "0.0.0.0/0", "got 0.0.0.0/0", "must be a prefix of pods' addresses"},
		{`prefixes: ["fd00:2::/48"]`, "prefixes: []", "rails[1].prefixes: must not be empty", "IPAM"},
		{"families: [ipv4]\n  prefixes: [10.1.0.0/16, ", "families: [ipv4]\n  prefixes: [", "[ipv4] must have a prefix for each family", "leave families out"},
		{"keep_ttl: true", "routers: [10.1.2.0/24]", "rails[0].routers: 10.1.2.0/24 must not overlap 10.1.0.0/16", "only addresses of routers"},
		{"keep_ttl: true", "routers: [192.0.2.1]", `got "192.0.2.1"`, "192.0.2.1/32"},
		{"keep_ttl: true", "dscp: {rewrite: 64}", "rails[0].dscp.rewrite: must be a DSCP of 0 to 63, got 64", "0 to 63"},
		{"keep_ttl: true", "dscp: {allow: [0, -1]}", "rails[0].dscp.allow[1]: must be a DSCP of 0 to 63, got -1", "0 to 63"},
		{"keep_ttl: true", "dscp: {rewrite: 26, allow: [0]}", "rails[0].dscp: must have either rewrite", "leave dscp out"},
		{"keep_ttl: true", "dscp: {}", "rails[0].dscp: must have either rewrite", "leave dscp out"},
		{"keep_ttl: true", "second: {uplink: p0x, leaf: 192.0.2.1}", "rails[0].second.leaf: both leaves", "of one family"},
		{"keep_ttl: true", "second: {uplink: p0x, leaf: unnumbered}", "rails[0].second.leaf: both leaves", "addresses of their own"},
		{"keep_ttl: true", "second: {uplink: p1, leaf: 192.0.2.3}", "interface p1 is already used by rails[0]", "its own"},
		{"keep_ttl: true", "second: {uplink: p0x, leaf: 10.1.0.9}", "10.1.0.9 must not be in 10.1.0.0/16", "without addresses of leaves"},
		{"max_prefixes: 100", "max_prefixes: -1", "maximum-prefix, got -1", "maximum-prefix"},
		{"kind: folder", "kind: consul", `got "consul"`, "tenants.kind: must be kubernetes"},
		{"folder: /mnt", "folder: mnt", `got "mnt/tenants"`, "tenants.folder: must be an absolute path"},
		{"asn: 65001", "asn: 0", "frr.asn: required by the backend vty", "router bgp"},
		{"asn: 65001", "asn: 4294967296", "frr.asn: must be a whole number", "got a number 4294967296"},
		{"backend: vty", "backend: frr", `got "frr"`, "kernel-table"},
		{`"[::1]:9000"`, "nine", `got "nine"`, "127.0.0.1:9477"},
		{"500ms", "1h", `got "1h"`, "from 10ms to 1m"},
		{"forward_timeout: 1s", "forward_timeout: 0s", `got "0s"`, "from 10ms to 1m"},
		{"/run/rw/d.sock", "/" + strings.Repeat("s", 120), "socket: ", "at most 107 bytes"},
		{"node: gpu-1", "node: Gpu_1", `got "Gpu_1"`, "Kubernetes"},
		{"node: gpu-1", "node: gpu..1", `got "gpu..1"`, "Kubernetes"},
		{"name: rail1", "name: " + strings.Repeat("a", 33), "rails[1].name: ", "a short name"},
		{large, "42", "configuration must have fields", "`rails`"},
		{large, "a: [", "parse YAML", ""},
		{large, "rails: []\ntenants: {kind: local}", "rails: must have 1 to 64 entries", "got 0"},
	} {
		text := strings.Replace(large, wrong.old, wrong.changed, 1)
		if text == large {
			t.Fatalf("%q is missing from the example", wrong.old)
		}
		_, err := Parse([]byte(text), Own{})
		if err == nil || !strings.Contains(err.Error(), wrong.want) || !strings.Contains(err.Error(), wrong.next) {
			t.Errorf("%q: %v\nwant %q and %q", wrong.changed, err, wrong.want, wrong.next)
		}
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	text := strings.NewReplacer("table: 210", "table: 0", "p1", "p 1", "kind: folder", "kind: none").Replace(large)
	_, err := Parse([]byte(text), Own{})
	for _, field := range []string{"rails[0].table", "rails[1].uplink", "tenants.kind"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
}

func TestErrorsAreInFileOrder(t *testing.T) {
	_, err := Parse([]byte(`
node: Gpu_1
state_folder: lib
socket: run
metrics: nine
netns_folders: [run, proc]
rails:
- {name: A, bridge: "b 0", uplink: "p 0", leaf: x, table: 0, families: [inet], prefixes: [none], max_prefixes: -1}
openvswitch: {database: db, management: run}
frr: {backend: none, bgp_socket: vty}
tenants: {kind: none}
advertise_timeout: 1h
forward_timeout: 1h
confirm_timeout: 1h`), Own{})
	if err == nil {
		t.Fatal("want an error")
	}
	var reported []string
	for line := range strings.Lines(err.Error()) {
		field, _, _ := strings.Cut(line, ": ")
		reported = append(reported, strings.TrimPrefix(field, "rails[0]."))
	}
	const want = "node state_folder socket metrics netns_folders[0] netns_folders[1] name bridge uplink leaf table families " +
		"prefixes[0] max_prefixes openvswitch.database openvswitch.management frr.backend frr.bgp_socket tenants.kind " +
		"advertise_timeout forward_timeout confirm_timeout"
	if strings.Join(reported, " ") != want {
		t.Errorf("got %q", reported)
	}
}

func TestReadErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "railwrightd.yaml")
	if _, err := Read(path, Own{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, Own{}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("long file: %v", err)
	}
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, Own{}); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(large))
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := Parse(content, Own{})
		if err == nil && (len(config.Rails) == 0 || config.Tenants.Kind == "") {
			t.Fatalf("accepted without rails or tenants: %q", content)
		}
	})
}
