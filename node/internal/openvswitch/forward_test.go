package openvswitch

import (
	"net/netip"
	"testing"

	"railwright/node/internal/plan"
)

func TestPodsReachEachOtherOnlyThroughTheGateway(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	rail.member("a", remoteIPv4, remoteIPv6)
	rail.program(t)

	for _, hop := range []struct {
		name string
		from *labPod
		to   netip.Addr
		ttl  string
	}{
		{"pod to pod here", first, second.ipv4(), "63"},
		{"pod to pod here", first, second.ipv6(), "63"},
		{"the other way", second, first.ipv4(), "63"},
		{"the other way", second, first.ipv6(), "63"},
		// Two routers are on the path: the leaf and this node.
		{"through the uplink", first, remoteIPv4, "62"},
		{"through the uplink", first, remoteIPv6, "62"},
	} {
		if ttl, err := ping(hop.from.namespace, hop.to); err != nil || ttl != hop.ttl {
			t.Errorf("%s to %v: TTL %q, want %s; %v", hop.name, hop.to, ttl, hop.ttl, err)
		}
	}
	if _, err := ping(rail.remote, first.ipv4()); err != nil {
		t.Errorf("from another node: %v", err)
	}
	for _, other := range append(second.Addresses, first.Gateways...) {
		if found := neighbour(t, first.namespace, "eth0", other); found != bridgeMAC {
			t.Errorf("%v is at %q for a pod, want the gateway's %s", other, found, bridgeMAC)
		}
	}

	counters := rail.readCounters(t)
	for _, pod := range rail.pods {
		if spoofed := counters[plan.Cookie(pod.Number, plan.DropSpoofed)].Packets; spoofed != 0 {
			t.Errorf("%d packets of a well-behaved kernel count as spoofed", spoofed)
		}
		for _, reason := range []plan.Reason{plan.Sent, plan.Received, plan.Answered} {
			if counters[plan.Cookie(pod.Number, reason)].Packets == 0 {
				t.Errorf("no packet counted as %v for pod %d", reason, pod.Number)
			}
		}
	}
}

// TestDataStaysInTheDatapath checks how many datapath flows a connection between two pods creates, and that they only
// match addresses and change headers, without a trip to ovs-vswitchd.
func TestDataStaysInTheDatapath(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	rail.program(t)
	for _, to := range second.Addresses {
		if _, err := ping(first.namespace, to); err != nil {
			t.Fatal(err)
		}
	}
	flows, err := rail.client.Datapath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data := 0
	for _, flow := range flows {
		t.Logf("%+v", flow)
		if flow.InPort != first.HostInterface && flow.InPort != second.HostInterface || flow.Packets == 0 ||
			flow.Actions == "drop" {
			continue
		}
		data++
		if flow.Layer != "netdev" || flow.Offloaded || flow.Reason != "the userspace datapath forwards in software" {
			t.Errorf("data flow is not in the datapath: %+v", flow)
		}
	}
	if data < 4 {
		t.Errorf("%d data flows, want at least 4: each direction and family", data)
	}
}
