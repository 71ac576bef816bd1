package plan

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
)

var update = flag.Bool("update", false, "rewrite testdata")

var rail0 = Rail{Name: "rail0", Bridge: "br-rail0", Uplink: "p0"}

func facts(ports map[string]uint32) Facts {
	return Facts{
		UplinkPort:    1,
		BridgeMAC:     mac("02:00:00:00:00:01"),
		LeafMAC:       mac("02:00:00:00:00:fe"),
		HostAddresses: addresses("10.0.0.0", "fd00:ffff::1", "fe80::1"),
		Ports:         ports,
		AnswersND:     true,
	}
}

func mac(text string) attachment.MAC {
	parsed, err := attachment.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

func addresses(texts ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

// pod returns attachment number n, with one interface on the port "veth<n>".
func pod(n int, tenant string, texts ...string) attachment.Attachment {
	return attachment.Attachment{
		Key:           attachment.Key{Network: "rail0", ContainerID: fmt.Sprintf("c%d", n), Interface: "net1"},
		Part:          []attachment.Part{attachment.Flows, attachment.Routes},
		Rail:          "rail0",
		Tenant:        tenant,
		HostInterface: fmt.Sprintf("veth%d", n),
		MAC:           attachment.MAC{2, 0, 0, 1, byte(n >> 8), byte(n)},
		Addresses:     addresses(texts...),
		Gateways:      addresses("10.1.0.1"),
		Number:        uint16(n),
		Added:         time.Unix(int64(n), 0),
	}
}

func members(tenant string, prefixes ...string) []Member {
	var all []Member
	for _, text := range prefixes {
		all = append(all, Member{netip.MustParsePrefix(text), tenant})
	}
	return all
}

func TestFlowsMatchGoldenFiles(t *testing.T) {
	unknownLeaf := facts(map[string]uint32{"veth1": 11})
	unknownLeaf.LeafMAC, unknownLeaf.AnswersND = attachment.MAC{}, false
	for name, test := range map[string]struct {
		rail        Rail
		facts       Facts
		attachments []attachment.Attachment
		tenants     Tenants
	}{
		"one_pod_ipv4": {
			rail0, facts(map[string]uint32{"p0": 1, "veth1": 11}),
			[]attachment.Attachment{pod(1, "ns:a", "10.1.0.2")},
			Tenants{map[string]uint32{"ns:a": 1}, members("ns:a", "10.1.0.2/32", "10.2.0.2/32"), nil},
		},
		"two_pods_dual_stack_peered": {
			rail0, facts(map[string]uint32{"p0": 1, "veth1": 11, "veth2": 12}),
			[]attachment.Attachment{pod(2, "ns:b", "10.1.0.3", "fd00:1::3"), pod(1, "ns:a", "10.1.0.2", "fd00:1::2")},
			Tenants{
				map[string]uint32{"ns:a": 1, "ns:b": 2},
				append(members("ns:a", "10.1.0.2/32", "fd00:1::2/128"), members("ns:b", "10.1.0.3/32", "fd00:1::3/128")...),
				[][2]string{{"ns:a", "ns:b"}},
			},
		},
		"prefixes_of_tenants": {
			Rail{Name: "rail0", Bridge: "br-rail0", Uplink: "p0", KeepTTL: true}, facts(map[string]uint32{"veth1": 11}),
			[]attachment.Attachment{pod(1, "red", "10.1.0.2", "fd00:1::2")},
			Tenants{map[string]uint32{"red": 7}, members("red", "10.1.0.0/18", "10.2.0.0/18", "fd00:1::/64"), nil},
		},
		"leaf_unknown_kernel_datapath": {
			rail0, unknownLeaf, []attachment.Attachment{pod(1, "ns:a", "fd00:1::2")},
			Tenants{map[string]uint32{"ns:a": 1}, members("ns:a", "fd00:1::2/128"), nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			flows, left := Flows(test.rail, test.facts, test.attachments, test.tenants)
			if len(left) != 0 {
				t.Errorf("left without flows: %v", left)
			}
			compareWithGolden(t, name, formatFlows(flows))
		})
	}
}

func formatFlows(flows []Flow) string {
	var text strings.Builder
	for _, flow := range flows {
		number, reason, _ := ParseCookie(flow.Cookie)
		fmt.Fprintf(&text, "%2d %3d %d:%-19v %s -> %s\n", flow.Table, flow.Priority, number, reason,
			matchOrStar(flow.Match), flow.Actions)
	}
	return text.String()
}

func matchOrStar(match string) string {
	if match == "" {
		return "*"
	}
	return match
}

func compareWithGolden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".flows")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(golden) != text {
		t.Errorf("%s differs from the planned flows; run go test -update and inspect git diff:\n%s", path, text)
	}
}

// TestNumberOfFlowsIsLinear checks the formula in the comment of Flows for several P and M: the number of flows must
// never grow as P times M.
func TestNumberOfFlowsIsLinear(t *testing.T) {
	for _, families := range []int{1, 2} {
		for _, pods := range []int{0, 1, 8, 64} {
			for _, others := range []int{0, 10, 1000} {
				for _, prefixes := range []bool{false, true} {
					attachments, ports, tenants := cluster(pods, others, families, prefixes)
					flows, left := Flows(rail0, facts(ports), attachments, tenants)
					want := 32 + 2*2 + 1 + pods*(5+7*families) + 2*len(tenants.Members) + len(tenants.Numbers) + 2
					if len(flows) != want || len(left) != 0 {
						t.Errorf("%d pods of %d addresses, %d others, prefixes %v: %d flows, want %d; left %v",
							pods, families, others, prefixes, len(flows), want, left)
					}
					if prefixes && len(flows) > 47+pods*19 {
						t.Errorf("%d flows for %d pods and prefixes: grows with the members", len(flows), pods)
					}
					checkSortedAndUnique(t, flows)
					second := facts(ports)
					second.Second = Way{Port: 9, Leaf: mac("02:00:00:00:00:fd")}
					flows, _ = Flows(rail0, second, attachments, tenants)
					if more := 5 + 2 + pods*families + 2; len(flows) != want+more {
						t.Errorf("a second uplink adds %d flows, want %d", len(flows)-want, more)
					}
				}
			}
		}
	}
}

// TestAttachmentsAndTenantPairsHaveFixedFlowCounts checks the flows of a single attachment and of a pair of peered
// tenants, independent of everything else on the rail.
func TestAttachmentsAndTenantPairsHaveFixedFlowCounts(t *testing.T) {
	for _, marking := range []Marking{{}, {Policy: RewriteMarking, DSCP: 26}, {Policy: RefuseMarking, Allowed: []uint8{0, 26, 48}, CNP: []uint8{48}}} {
		rail := rail0
		rail.Marking, rail.Routers = marking, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
		for _, families := range []int{1, 2} {
			count := func(pods int, rate uint64, open bool) int {
				attachments, ports, tenants := cluster(pods, 100, families, true)
				for i := range attachments {
					attachments[i].MaxRate = rate
				}
				if !open {
					tenants.Pairs = nil
				}
				flows, left := Flows(rail, facts(ports), attachments, tenants)
				if len(left) > 0 {
					t.Fatal(left)
				}
				return len(flows)
			}
			each := 5 + families*(7+len(marking.Allowed)+len(marking.CNP))
			for _, pods := range []int{1, 7, 64} {
				if found := count(pods, 0, true) - count(0, 0, true); found != pods*each {
					t.Errorf("%d attachments of %d addresses, %+v: %d flows, want %d each", pods, families, marking, found, each)
				}
				if found := count(pods, 1000, true) - count(0, 0, true); found != pods*(each+1) {
					t.Errorf("%d attachments with a rate: %d flows, want %d each", pods, found, each+1)
				}
				if found := count(pods, 0, true) - count(pods, 0, false); found != 2 {
					t.Errorf("a pair of tenants has %d flows, want 2", found)
				}
			}
			if found := count(0, 0, true); found != 32+2*2+1+2*3+2+2+len(rail.Routers) {
				t.Errorf("a rail without pods, with 3 prefixes, 2 tenants, a pair and 2 routers has %d flows", found)
			}
		}
	}
}

// cluster returns two peered tenants: pods on this node, others on other nodes.
func cluster(pods, others, families int, prefixes bool) ([]attachment.Attachment, map[string]uint32, Tenants) {
	tenants := Tenants{Numbers: map[string]uint32{"ns:a": 1, "ns:b": 2}, Pairs: [][2]string{{"ns:a", "ns:b"}}}
	if prefixes {
		tenants.Members = append(members("ns:a", "10.1.0.0/17", "fd00:1::/112"), members("ns:b", "10.1.128.0/17")...)
	}
	var attachments []attachment.Attachment
	ports := map[string]uint32{"p0": 1}
	for n := 1; n <= pods+others; n++ {
		texts := []string{fmt.Sprintf("10.1.%d.%d", n/256, n%256), fmt.Sprintf("fd00:1::%x", n)}[:families]
		att := pod(n, "ns:a", texts...)
		if !prefixes {
			for _, address := range att.Addresses {
				tenants.Members = append(tenants.Members, Member{single(address), "ns:a"})
			}
		}
		if n <= pods {
			attachments = append(attachments, att)
			ports[att.HostInterface] = uint32(100 + n)
		}
	}
	return attachments, ports, tenants
}

func checkSortedAndUnique(t *testing.T, flows []Flow) {
	t.Helper()
	seen := map[Key]bool{}
	for place, flow := range flows {
		if seen[flow.Key()] {
			t.Errorf("duplicate flow: %+v", flow)
		}
		seen[flow.Key()] = true
		if place > 0 && flows[place-1].Table > flow.Table {
			t.Errorf("not sorted by table: %+v", flow)
		}
	}
}

func TestFlowsDoNotDependOnInputOrder(t *testing.T) {
	attachments, ports, tenants := cluster(20, 20, 2, false)
	first, _ := Flows(rail0, facts(ports), attachments, tenants)
	slices.Reverse(attachments)
	slices.Reverse(tenants.Members)
	second, _ := Flows(rail0, facts(ports), attachments, tenants)
	if !slices.Equal(first, second) {
		t.Error("reordered input changes the flows")
	}
}

func TestNamesNeverReachFlows(t *testing.T) {
	hostile := "x,actions=NORMAL\n$(reboot)"
	att := pod(1, "ns:a", "10.1.0.2")
	given := Tenants{map[string]uint32{"ns:a": 1}, members("ns:a", "10.1.0.2/32"), nil}
	want, _ := Flows(rail0, facts(map[string]uint32{"veth1": 11}), []attachment.Attachment{att}, given)
	att.HostInterface, att.Tenant, att.DeviceID, att.Netns = hostile, hostile, hostile, hostile
	att.Key = attachment.Key{Network: hostile, ContainerID: hostile, Interface: hostile}
	att.Pod = attachment.Pod{Namespace: hostile, Name: hostile, UID: hostile}
	given = Tenants{map[string]uint32{hostile: 1}, members(hostile, "10.1.0.2/32"), [][2]string{{hostile, hostile}}}
	got, left := Flows(rail0, facts(map[string]uint32{hostile: 11}), []attachment.Attachment{att}, given)
	if len(left) != 0 || !slices.Equal(got, want) {
		t.Errorf("names change the flows:\n%s\nleft %v", formatFlows(got), left)
	}
}

// TestTwoLeavesShareAndReplaceEachOther checks where packets to the leaf go, and from where packets are admitted.
func TestTwoLeavesShareAndReplaceEachOther(t *testing.T) {
	first, second := mac("02:00:00:00:00:fe"), mac("02:00:00:00:00:fd")
	for name, test := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"both up":           {func(*Facts) {}, "1 9"},
		"first down":        {func(facts *Facts) { facts.LeafDown = true }, "9"},
		"second down":       {func(facts *Facts) { facts.Second.Down = true }, "1"},
		"both down":         {func(facts *Facts) { facts.LeafDown, facts.Second.Down = true, true }, "1 9"},
		"first unknown":     {func(facts *Facts) { facts.LeafMAC = attachment.MAC{} }, "9"},
		"unknown and down":  {func(facts *Facts) { facts.LeafMAC, facts.Second.Down = attachment.MAC{}, true }, "9"},
		"both unknown":      {func(facts *Facts) { facts.LeafMAC, facts.Second.Leaf = attachment.MAC{}, attachment.MAC{} }, ""},
		"two MACs, a bond":  {func(facts *Facts) { facts.Second.Port = 1 }, "1 1"},
		"no second at all":  {func(facts *Facts) { facts.Second = Way{} }, "1"},
		"second has no MAC": {func(facts *Facts) { facts.Second.Leaf = attachment.MAC{} }, "1"},
	} {
		known := facts(map[string]uint32{"veth1": 11})
		known.LeafMAC, known.Second = first, Way{Port: 9, Leaf: second}
		test.change(&known)
		tenants := Tenants{Numbers: map[string]uint32{"ns:a": 1}, Members: members("ns:a", "10.1.0.2/32")}
		flows, left := Flows(rail0, known, []attachment.Attachment{pod(1, "ns:a", "10.1.0.2")}, tenants)
		if len(left) > 0 {
			t.Fatal(left)
		}
		var out []string
		admitted := 0
		for _, flow := range flows {
			_, port, found := strings.Cut(flow.Actions, "output:")
			if flow.Table == tableDeliver && flow.Priority == priorityLeaf && found && strings.HasPrefix(flow.Match, "ip,") || flow.Match == "ip" {
				out = append(out, port)
			}
			if flow.Table == tableClassify && flow.Priority == priorityPodAddress {
				admitted++
			}
		}
		slices.Sort(out)
		if got := strings.Join(out, " "); got != test.want {
			t.Errorf("%s: leaves by %q, want %q", name, got, test.want)
		}
		if admitted != len(known.uplinks()) {
			t.Errorf("%s: admitted from %d uplinks, want %d", name, admitted, len(known.uplinks()))
		}
	}
}
