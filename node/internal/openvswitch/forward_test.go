package openvswitch

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// TestASettledDatapathForgetsDeletedFlows checks that nothing is forwarded by cached flows once Settle returns, and that the
// change that begins a round does not look like another program's.
func TestASettledDatapathForgetsDeletedFlows(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	flows := rail.program(t)
	seconds := slices.DeleteFunc(slices.Clone(flows), func(flow plan.Flow) bool {
		number, _, _ := plan.ParseCookie(flow.Cookie)
		return number != second.Number
	})
	ctx := t.Context()
	events := rail.client.Events(ctx)
	forwarded := func() (found []string) {
		cached, err := rail.client.Datapath(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range cached {
			// The gateway still answers the pod's requests.
			asks := strings.Contains(flow.Match, "arp") || strings.Contains(flow.Match, "icmpv6(type=135")
			if flow.InPort == second.HostInterface && flow.Actions != "drop" && !asks {
				found = append(found, flow.Match+" "+flow.Actions)
			}
		}
		return found
	}
	for range 3 {
		for _, to := range second.Addresses {
			if _, err := ping(first.namespace, to); err != nil {
				t.Fatal(err)
			}
		}
		if len(forwarded()) == 0 {
			t.Fatal("nothing is cached, so the test proves nothing")
		}
		if err := rail.client.Change(ctx, bridgeName, nil, seconds); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if err := rail.client.Settle(ctx, 2); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if found := forwarded(); len(found) > 0 {
			t.Errorf("cached flows still forward: %q", found)
		}
		if err := rail.client.Change(ctx, bridgeName, seconds, nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case event := <-events:
		t.Errorf("%+v", event)
	default:
	}
}
