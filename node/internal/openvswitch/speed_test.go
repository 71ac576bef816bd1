package openvswitch

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// manyFlows returns about 2,000 flows of a node with pods of one tenant and members elsewhere, and the flows of one
// more pod.
func manyFlows(b *testing.B, rail *lab) (flows, onePod []plan.Flow) {
	b.Helper()
	facts, err := rail.client.Facts(b.Context(), rail.rail)
	if err != nil {
		b.Fatal(err)
	}
	const pods, members = 64, 360
	var attachments []attachment.Attachment
	tenants := plan.Tenants{Numbers: map[string]uint32{"a": 1}}
	for n := 2; n < pods+3; n++ {
		att := newAttachment(n, "a", fmt.Sprintf("veth%d", n), fmt.Sprintf("02:00:00:01:00:%02x", n))
		facts.Ports[att.HostInterface] = uint32(100 + n)
		attachments = append(attachments, att)
	}
	for n := range members {
		tenants.Members = append(tenants.Members, plan.Member{
			Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), 32), Tenant: "a"})
	}
	flows, _ = plan.Flows(rail.rail, facts, attachments, tenants)
	had := map[plan.Flow]bool{}
	fewer, _ := plan.Flows(rail.rail, facts, attachments[:pods], tenants)
	for _, flow := range fewer {
		had[flow] = true
	}
	for _, flow := range flows {
		if !had[flow] {
			onePod = append(onePod, flow)
		}
	}
	return fewer, onePod
}

// BenchmarkPrograms measures programming: go test -run=- -bench=Programs ./internal/openvswitch
func BenchmarkPrograms(b *testing.B) {
	rail := newLab(b)
	rail.programHost(b)
	flows, onePod := manyFlows(b, rail)
	ctx := b.Context()
	replace := func(b *testing.B) {
		if _, err := rail.client.Replace(ctx, bridgeName, flows); err != nil {
			b.Fatal(err)
		}
	}
	replace(b)
	add, remove := onePod, []plan.Flow(nil)
	benchmarks := map[string]func(b *testing.B){
		fmt.Sprintf("Change/%d flows of one pod", len(onePod)): func(b *testing.B) {
			if err := rail.client.Change(ctx, bridgeName, add, remove); err != nil {
				b.Fatal(err)
			}
			add, remove = remove, add
		},
		"Differences/none": func(b *testing.B) {
			if _, err := rail.client.Differences(ctx, bridgeName, flows); err != nil {
				b.Fatal(err)
			}
		},
		"Replace/all, and del-flows,": func(b *testing.B) {
			rail.open.Ofctl(b, bridgeName, "del-flows")
			replace(b)
		},
		"Replace/none": replace,
		"Counters": func(b *testing.B) {
			if _, err := rail.client.Counters(ctx, bridgeName); err != nil {
				b.Fatal(err)
			}
		},
		"Facts": func(b *testing.B) {
			if _, err := rail.client.Facts(ctx, rail.rail); err != nil {
				b.Fatal(err)
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(benchmarks)) {
		replace(b)
		b.Run(fmt.Sprintf("%s of %d", name, len(flows)), func(b *testing.B) {
			for b.Loop() {
				benchmarks[name](b)
			}
		})
	}
}
