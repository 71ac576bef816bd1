package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railwright/node/internal/attachment"
)

func TestUnusableAttachmentsGetAReason(t *testing.T) {
	ports := map[string]uint32{"p0": 1, "veth1": 11, "veth2": 12}
	for _, test := range []struct {
		reason string
		change func(*attachment.Attachment)
	}{
		{`port "veth9" has no OpenFlow number`, func(att *attachment.Attachment) { att.HostInterface = "veth9" }},
		{"is already in use by rail0/c1/net1", func(att *attachment.Attachment) { att.HostInterface = "veth1" }},
		{"is the uplink", func(att *attachment.Attachment) { att.HostInterface = "p0" }},
		{"10.1.0.2 is already in use by rail0/c1/net1", changeAddress("10.1.0.2")},
		{"10.0.0.0 belongs to the host", changeAddress("10.0.0.0")},
		{"fe80::5 is not usable", changeAddress("fe80::5")},
		{"224.0.0.1 is not usable", changeAddress("224.0.0.1")},
		{"0.0.0.0 is not usable", changeAddress("0.0.0.0")},
		{"::ffff:10.1.0.9 is not usable", changeAddress("::ffff:10.1.0.9")},
		{"the second of its family", changeAddress("10.1.0.8", "10.1.0.9")},
		{"00:00:00:00:00:00 is not usable", func(att *attachment.Attachment) { att.MAC = attachment.MAC{} }},
		{"02:00:00:00:00:01 is not usable", func(att *attachment.Attachment) { att.MAC = mac("02:00:00:00:00:01") }},
	} {
		first, second := pod(1, "ns:a", "10.1.0.2"), pod(2, "ns:b", "10.1.0.3")
		test.change(&second)
		tenants := Tenants{map[string]uint32{"ns:a": 1, "ns:b": 2}, members("ns:a", "10.1.0.2/32"), nil}
		flows, left := Flows(rail0, facts(ports), []attachment.Attachment{second, first}, tenants)
		if len(left) != 1 || left[0].Key != second.Key || !strings.Contains(left[0].Reason, test.reason) {
			t.Errorf("want left because %q, got %v", test.reason, left)
		}
		for _, flow := range flows {
			if number, _, _ := ParseCookie(flow.Cookie); number == 2 {
				t.Errorf("%s: got flow %+v", test.reason, flow)
			}
		}
	}
}

func changeAddress(texts ...string) func(*attachment.Attachment) {
	return func(att *attachment.Attachment) { att.Addresses = addresses(texts...) }
}

func TestFlowsSkipOtherRailsAndRoutesOnly(t *testing.T) {
	elsewhere, routesOnly := pod(1, "ns:a", "10.1.0.2"), pod(2, "ns:a", "10.1.0.3")
	elsewhere.Rail = "rail1"
	routesOnly.Part = []attachment.Part{attachment.Routes}
	all := []attachment.Attachment{elsewhere, routesOnly}
	flows, left := Flows(rail0, facts(map[string]uint32{"veth1": 11, "veth2": 12}), all, Tenants{})
	if len(flows) != 37 || len(left) != 0 {
		t.Errorf("%d flows, left %v; want 37, as on an empty rail:\n%s", len(flows), left, formatFlows(flows))
	}
	if routes := Routes(rail0, all, left); !slices.Equal(routes, []netip.Prefix{netip.MustParsePrefix("10.1.0.3/32")}) {
		t.Errorf("announced: %v", routes)
	}
}

func TestRailWithoutFactsDropsEverything(t *testing.T) {
	flows, left := Flows(rail0, Facts{Ports: map[string]uint32{"veth1": 11}},
		[]attachment.Attachment{pod(1, "ns:a", "10.1.0.2")}, Tenants{Numbers: map[string]uint32{"ns:a": 1}})
	for _, flow := range flows {
		if flow.Actions != "drop" {
			t.Errorf("%+v", flow)
		}
	}
	if len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestTenantWithoutNumberReachesNothing(t *testing.T) {
	flows, _ := Flows(rail0, facts(map[string]uint32{"veth1": 11}), []attachment.Attachment{pod(1, "ns:a", "10.1.0.2")},
		Tenants{
			Members: members("ns:a", "10.1.0.2/32", "10.2.0.2/32"),
			Pairs:   [][2]string{{"ns:a", "ns:a"}, {"ns:b", "ns:c"}},
		})
	for _, flow := range flows {
		if flow.Actions != "drop" && flow.Table >= tableDestination && flow.Table < tableRate {
			t.Errorf("flow lets packets through: %+v", flow)
		}
		if _, reason, _ := ParseCookie(flow.Cookie); reason == Sent {
			t.Errorf("flow lets packets out: %+v", flow)
		}
	}
}

func TestAddressOfTwoTenantsBelongsToNeither(t *testing.T) {
	flows, _ := Flows(rail0, facts(nil), nil, Tenants{
		Numbers: map[string]uint32{"ns:a": 1, "ns:b": 2},
		Members: append(members("ns:a", "10.2.0.2/32", "10.2.0.3/32"), members("ns:b", "10.2.0.2/32")...),
	})
	text := formatFlows(flows)
	if strings.Contains(text, "10.2.0.2") || !strings.Contains(text, "10.2.0.3") {
		t.Error(text)
	}
}

func TestUnservedAttachmentsAreNotAnnounced(t *testing.T) {
	att, other := pod(1, "ns:a", "10.1.0.2", "fd00::2"), pod(2, "ns:a", "10.1.0.3")
	_, left := Flows(rail0, facts(map[string]uint32{"veth1": 11}), []attachment.Attachment{other, att}, Tenants{})
	got := Routes(rail0, []attachment.Attachment{other, att}, left)
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.2/32"), netip.MustParsePrefix("fd00::2/128")}
	if !slices.Equal(got, want) {
		t.Errorf("announced %v, want %v", got, want)
	}
}

func TestEveryReasonHasALabel(t *testing.T) {
	seen := map[string]bool{}
	for reason := Pass; reason <= Received; reason++ {
		label := reason.String()
		if seen[label] || label == "unknown" {
			t.Errorf("reason %d: label %q", reason, label)
		}
		seen[label] = true
	}
	if DropOtherTenant.Drops() != true || Sent.Drops() || Canary.Drops() {
		t.Error("Drops is wrong")
	}
}

func TestRateHasAMeterInEachDirection(t *testing.T) {
	att := pod(3, "ns:a", "10.1.0.2", "fd00::2")
	att.MaxRate = 25_000_000_000
	flows, _ := Flows(rail0, facts(map[string]uint32{"veth3": 11}), []attachment.Attachment{att},
		Tenants{Numbers: map[string]uint32{"ns:a": 1}})
	meters := map[Reason][]uint32{}
	for _, flow := range flows {
		if flow.Meter == 0 {
			continue
		}
		_, reason, _ := ParseCookie(flow.Cookie)
		meters[reason] = append(meters[reason], flow.Meter)
		if flow.Rate != att.MaxRate || !strings.HasPrefix(flow.Actions, "meter:") {
			t.Errorf("%+v", flow)
		}
		if flow.Table <= tablePairs {
			t.Errorf("flow is metered before the tenant check: %+v", flow)
		}
	}
	if !slices.Equal(meters[Pass], []uint32{6}) || !slices.Equal(meters[Received], []uint32{7, 7}) || len(meters) != 2 {
		t.Errorf("meters: %v", meters)
	}
}
