package openvswitch

import (
	"net/netip"
	"strings"
	"testing"

	"railwright/node/internal/plan"
)

// lineHead and counts surround the varying part of the lines below.
const (
	lineHead = "ufid:3a40baed-f735-454a-afca-3ee5b158d095, skb_priority(0/0),skb_mark(0/0),ct_state(0/0),recirc_id(0),"
	counts   = ", packets:10, bytes:980, used:0.51s, "
)

var (
	hardware = datapathView{
		ports:           map[uint64]string{1: "br-rail0", 2: "rep0", 3: "pf0", 4: "veth),in_port(9"},
		hardwareOffload: true,
		onSwitch:        map[string]bool{"rep0": true, "pf0": true},
	}
	userspace = datapathView{ports: hardware.ports, userspace: true, hardwareOffload: true}
	software  = datapathView{ports: hardware.ports}
)

// datapathLines are lines of Open vSwitch 3.1 and 3.5, from the kernel's datapath with hardware offload and from the
// userspace datapath.
var datapathLines = []struct {
	view      datapathView
	line      string
	layer     string
	port      string
	offloaded bool
	reason    string
}{
	{hardware, "in_port(2),eth_type(0x0800),ipv4(src=10.1.0.2,frag=no)" + counts +
		"offloaded:yes, dp:tc, actions:set(eth(src=02:00:00:00:00:01)),3", "tc", "rep0", true, ""},
	{hardware, "in_port(2),packet_type(ns=0/0,id=0/0),eth_type(0x0800),ipv4(frag=no)" + counts + "dp:tc, actions:3",
		"tc", "rep0", false, "driver refused"},
	{hardware, "in_port(2),eth_type(0x0800)" + counts + "offloaded:partial, dp:ovs, actions:3",
		"ovs", "rep0", false, "only a part"},
	{hardware, "in_port(2),eth_type(0x86dd),ipv6(proto=44,frag=later),key32(00 00/00 00)" + counts + "dp:ovs, actions:3",
		"ovs", "rep0", false, "IPv6 fragments"},
	{hardware, "in_port(4),eth_type(0x0800)" + counts + "dp:ovs, actions:3",
		"ovs", "veth),in_port(9", false, `"veth),in_port(9" is not a port of a NIC`},
	{hardware, "in_port(3),eth_type(0x0806), packets:1, bytes:42, used:never, dp:ovs, actions:1",
		"ovs", "pf0", false, `"br-rail0" is not a port of a NIC`},
	{hardware, "in_port(2),eth_type(0x0806), packets:0, bytes:0, used:never, dp:ovs, " +
		"actions:userspace(pid=4294967295,slow_path(action))", "ovs", "rep0", false, "slow path: action"},
	{hardware, "in_port(2),eth_type(0x0800)" + counts + "flags:FP., dp:ovs, actions:3",
		"ovs", "rep0", false, "vswitchd's log says why"},
	{software, "in_port(2),eth_type(0x0800)" + counts + "dp:ovs, actions:3", "ovs", "rep0", false, "hw-offload is off"},
	{userspace, "in_port(2),eth_type(0x0800)" + counts + "dp:ovs, actions:3, dp-extra-info:miniflow_bits(5,1)",
		"netdev", "rep0", false, "userspace datapath"},
}

func TestDatapathFlowsAreParsedWithTheirReason(t *testing.T) {
	for _, test := range datapathLines {
		flow, ok, err := test.view.read(lineHead + test.line)
		if !ok || err != nil {
			t.Fatalf("%v %v: %s", ok, err, test.line)
		}
		if flow.Layer != test.layer || flow.InPort != test.port || flow.Offloaded != test.offloaded ||
			!strings.Contains(flow.Reason, test.reason) || (test.reason == "") != (flow.Reason == "") {
			t.Errorf("%+v\n of %s", flow, test.line)
		}
		if strings.ContainsAny(flow.Match, " ;") && !strings.Contains(flow.Match, "key32") ||
			strings.Contains(flow.Match, "ufid") || strings.Contains(flow.Match, "(0/0)") ||
			strings.Contains(flow.Actions, "extra") {
			t.Errorf("useless fields remain: %+v", flow)
		}
	}
	flow, _, _ := hardware.read(lineHead + "in_port(2), packets:7, bytes:8, used:never, dp:ovs, actions:drop")
	if flow.Packets != 7 || flow.Bytes != 8 || flow.UsedSeconds != -1 || flow.Actions != "drop" {
		t.Errorf("%+v", flow)
	}
}

func TestMalformedFlowsAreErrors(t *testing.T) {
	for _, line := range []string{"flow-dump from the main thread:", ""} {
		if _, ok, err := (datapathView{}).read(line); ok || err != nil {
			t.Errorf("%q: %v %v", line, ok, err)
		}
	}
	for _, line := range []string{
		"in_port(2), packets:x, bytes:0, used:never, actions:drop", "in_port(2), packets:1, bytes:1, used:soon, actions:drop",
		"in_port(2), packets:1, bytes:1, used:never",
	} {
		if _, _, err := (datapathView{}).read(line); err == nil {
			t.Errorf("%q should be an error", line)
		}
	}
	if _, _, ok, err := parseCount(" cookie=0x1, n_packets=many, n_bytes=2, priority=1 actions=drop"); ok || err == nil {
		t.Error("malformed count should be an error")
	}
	cookie, count, ok, err := parseCount(" cookie=0x7277000200000002, duration=1.2s, table=0, n_packets=3, n_bytes=180, " +
		"arp actions=n_packets=9")
	if !ok || err != nil || cookie != plan.Cookie(2, plan.DropSpoofed) || count != (Count{Packets: 3, Bytes: 180}) {
		t.Errorf("%#x %+v %v %v", cookie, count, ok, err)
	}
}

func TestDifferencesCountEachFlowOnce(t *testing.T) {
	lines := []string{
		"-in_port=2 cookie=0x1 actions=output:1", "+in_port=2 cookie=0x2 actions=output:3", "+table=3 actions=drop",
		"-table=63 priority=0 actions=drop", "+table=63 priority=1 actions=drop",
	}
	var differing differences
	for _, line := range lines {
		differing.add(line)
	}
	if count := differing.count(); count != 4 || len(differing.first) != len(lines) {
		t.Errorf("%d flows differ, want 4; lines %q", count, differing.first)
	}
}

func TestRulesAreReadInPiecesOfAnySize(t *testing.T) {
	flows := []plan.Flow{{Table: 1, Actions: "drop"}, {Table: 2, Match: "ip", Actions: "output:1"}}
	want := rule(flows[0]) + rule(flows[1])
	for size := 1; size <= len(want)+1; size++ {
		var got []byte
		for reader, piece := rules(flows)(), make([]byte, size); ; {
			read, err := reader.Read(piece)
			got = append(got, piece[:read]...)
			if err != nil {
				break
			}
		}
		if string(got) != want {
			t.Fatalf("pieces of %d: %q", size, got)
		}
	}
}

func TestEventsOfASlowReaderAreMerged(t *testing.T) {
	events := newEvents()
	slow, quick := events.subscribe(t.Context()), events.subscribe(t.Context())
	events.post(Event{Bridge: "b", Reason: "first"})
	if event := <-quick; event.Reason != "first" {
		t.Errorf("%+v", event)
	}
	// The slow reader may already hold the first event; later ones are kept and merged.
	for range 1000 {
		events.post(Event{Bridge: "b", Reason: "ports"})
		events.post(Event{Bridge: "c", Reason: "ports"})
	}
	events.post(Event{Bridge: "b", FlowsLost: true, Reason: "flows"})
	events.post(Event{Bridge: "b", Reason: "leaf"})
	lost, other, seen := false, false, 0
	for !lost || !other {
		event := <-slow
		seen++
		lost, other = lost || event.FlowsLost, other || event.Bridge == "c"
		if len(event.Reason) > longestReason {
			t.Errorf("reason has %d characters", len(event.Reason))
		}
	}
	if seen > 4 {
		t.Errorf("got %d events, want at most 4", seen)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	good := func() Settings {
		return Settings{Database: "/run/openvswitch/db.sock", Management: "/run/openvswitch",
			Rails: []RailSettings{{
				Rail: plan.Rail{Name: "rail0", Bridge: "br0", Uplink: "p0"}, Leaf: netip.MustParseAddr("10.0.0.1"),
			}}}
	}
	settings := good()
	if err := settings.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Settings){
		"database socket":   func(settings *Settings) { settings.Database = "db.sock" },
		"management folder": func(settings *Settings) { settings.Management = "/run/%41?x" },
		"control socket":    func(settings *Settings) { settings.Control = "/x y" },
		"bridge":            func(settings *Settings) { settings.Rails[0].Bridge = "-O" },
		"uplink":            func(settings *Settings) { settings.Rails[0].Uplink = "p0,x" },
		"different bridges": func(settings *Settings) { settings.Rails = append(settings.Rails, settings.Rails[0]) },
	} {
		settings := good()
		change(&settings)
		if _, err := New(t.Context(), settings); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForeignBridgesAreRefused(t *testing.T) {
	client := &Client{bridges: map[string]*bridge{}}
	for _, name := range []string{"", "br-int", "../x", "br0 -"} {
		if err := client.Change(t.Context(), name, nil, nil); err == nil {
			t.Errorf("%q was changed", name)
		}
		if _, err := client.Replace(t.Context(), name, nil); err == nil {
			t.Errorf("%q was replaced", name)
		}
		if _, err := client.Counters(t.Context(), name); err == nil {
			t.Errorf("%q was counted", name)
		}
	}
}
