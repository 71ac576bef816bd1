package openvswitch

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// plannedFlows returns flows of all kinds: both families, rates, markings and tenants with prefixes.
func plannedFlows(t *testing.T) []plan.Flow {
	t.Helper()
	var all []plan.Flow
	for _, marking := range []plan.Marking{
		{}, {Policy: plan.RewriteMarking, DSCP: 26, CNP: []uint8{48}}, {Policy: plan.RefuseMarking, Allowed: []uint8{0, 26}, CNP: []uint8{48}},
	} {
		rail := plan.Rail{
			Name: "rail0", Bridge: bridgeName, Uplink: "p0", Marking: marking,
			Routers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}
		first, second := newAttachment(2, "a", "veth2", "02:00:00:01:00:02"), newAttachment(3, "b", "veth3", "02:00:00:01:00:03")
		first.MaxRate = 25e9
		facts := plan.Facts{
			UplinkPort: 1, BridgeMAC: attachment.MAC{2, 0, 0, 0, 0, 1}, LeafMAC: attachment.MAC{2, 0, 0, 0, 0, 9}, AnswersND: true,
			HostAddresses: []netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00:ffff::")},
			Ports:         map[string]uint32{"p0": 1, "veth2": 2, "veth3": 60000},
			Second:        plan.Way{Port: 9, Leaf: attachment.MAC{2, 0, 0, 0, 0, 8}},
		}
		flows, left := plan.Flows(rail, facts, []attachment.Attachment{first, second}, plan.Tenants{
			Numbers: map[string]uint32{"a": 1, "b": 4_000_000_000}, Pairs: [][2]string{{"a", "b"}},
			Members: []plan.Member{
				{Prefix: netip.MustParsePrefix("10.1.0.2/32"), Tenant: "a"}, {Prefix: netip.MustParsePrefix("10.8.0.0/17"), Tenant: "b"},
				{Prefix: netip.MustParsePrefix("fd00:1::/64"), Tenant: "a"},
			},
		})
		if len(left) > 0 {
			t.Fatal(left)
		}
		all = append(all, flows...)
	}
	return all
}

var messageNumber = regexp.MustCompile(` \(xid=0x[0-9a-f]+\)`)

// TestEncodedFlowsAreThoseOfOfctl compares each planned flow, as it is encoded here, with the same flow as ovs-ofctl
// parses its text. Only flows that a bridge gets once are left to ovs-ofctl.
func TestEncodedFlowsAreThoseOfOfctl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("waived: ovs-ofctl is not installed")
	}
	folder := t.TempDir()
	text, binary := filepath.Join(folder, "text"), filepath.Join(folder, "binary")
	var rulesText strings.Builder
	var messages []byte
	for i, flow := range plannedFlows(t) {
		body, err := encodeFlow(modAdd, flow)
		if err != nil {
			if number, _, _ := plan.ParseCookie(flow.Cookie); number != 0 || !strings.Contains(flow.Actions, "move:") && !strings.Contains(flow.Match, "136") {
				t.Errorf("%s -> %s: %v", flow.Match, flow.Actions, err)
			}
			continue
		}
		messages = append(messages, message(typeFlowMod, uint32(i), body)...)
		rulesText.WriteString(rule(flow))
	}
	for file, content := range map[string]string{text: rulesText.String(), binary: string(messages)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(arguments ...string) []string {
		output, err := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow14"}, arguments...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		var lines []string
		for line := range strings.Lines(messageNumber.ReplaceAllString(string(output), "")) {
			if strings.HasPrefix(line, "OFPT_FLOW_MOD") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	want, got := read("parse-flows", text), read("ofp-parse", binary)
	if len(want) < 100 || len(got) != len(want) {
		t.Fatalf("%d encoded flows, %d of ovs-ofctl", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %swant %s", got[i], want[i])
		}
	}
}

// TestUnknownFlowsAreNotEncoded checks that nothing of a flow is lost without an error.
func TestUnknownFlowsAreNotEncoded(t *testing.T) {
	t.Parallel()
	for _, flow := range []plan.Flow{
		{Match: "tcp"}, {Match: "ip,nw_tos=4"}, {Match: "in_port=x"}, {Match: "dl_src=1"}, {Match: "ip,nw_src=10.0.0.300"}, {Match: "ip,nw_src=fd00::1"},
		{Actions: "resubmit(,3)"}, {Actions: "output:x"}, {Actions: "set_field:1->tun_id"}, {Actions: "goto_table:x"},
	} {
		if _, err := encodeFlow(modAdd, flow); err == nil {
			t.Errorf("%q -> %q was encoded", flow.Match, flow.Actions)
		}
	}
}
