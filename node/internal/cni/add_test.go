package cni

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
)

func request(pod string, parts ...nodev1.Part) *nodev1.AddRequest {
	return &nodev1.AddRequest{
		Key: key1, Parts: parts, Pod: &nodev1.Pod{Namespace: "tenant1", Name: "pod1", Uid: "u-1"}, Netns: pod,
		HostInterface: "veth0", Mac: "02:00:00:00:01:10", Addresses: []string{"10.1.0.5", "fd00:1::5"},
		Gateways: []string{"10.1.0.1", "fd00:1::1"}, DeviceId: "0000:08:00.2",
	}
}

var gatewayReply = onlyAdd(func() (proto.Message, error) {
	return &nodev1.AddReply{Rail: "rail1", GatewayMac: "02:00:00:00:aa:01"}, nil
})

func onlyAdd(answer func() (proto.Message, error)) func(context.Context, proto.Message) (proto.Message, error) {
	return func(_ context.Context, request proto.Message) (proto.Message, error) {
		if _, ok := request.(*nodev1.AddRequest); !ok {
			return nil, nil
		}
		return answer()
	}
}

func TestEveryPluginRequestsItsPartsAndPrintsPrevResult(t *testing.T) {
	flows, routes := nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES
	daemon := cnitest.Start(t)
	for name, parts := range map[string][]nodev1.Part{
		"railwright-cni": {flows, routes}, "ovs-provider": {flows}, "ovs-provider-cli": {flows},
		"frr-provider": {routes}, "frr-provider-cli": {routes},
	} {
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			previous := result(version, "/run/netns/not-there")
			outcome := cnitest.Call{
				Program: pluginPath(t, name), Command: "ADD", ContainerID: "c1", Netns: "/run/netns/not-there", Interface: "net1",
				Args: pod1Args, Config: config(daemon, version, map[string]any{"prevResult": previous}),
			}.Do(t)
			wantSuccess(t, outcome)
			wantRequests(t, daemon, request("/run/netns/not-there", parts...))
			if got, want := normal(t, outcome.Stdout), normal(t, previous); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: printed %v\nwant %v", name, version, got, want)
			}
		}
	}
}

// normal decodes a result. It drops an empty dns, which 1.0.0 omits.
func normal(t *testing.T, value any) map[string]any {
	t.Helper()
	text, ok := value.(string)
	if !ok {
		encoded, _ := json.Marshal(value)
		text = string(encoded)
	}
	var decoded map[string]any
	if err := json.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	delete(decoded, "dns")
	return decoded
}

func TestAddWritesTheGatewayIntoThePod(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	daemon.Answer = gatewayReply
	outcome := pair.add(t, daemon, map[string]any{
		"mtu": 1400, "maxRate": "2.5Gb/s", "routes": []map[string]any{{"dst": "10.0.0.0/8"}, {"dst": "fd00::/16"}},
	})
	wantSuccess(t, outcome)
	want := request(pair.pod.Path(), bothParts...)
	want.MaxRateBitsPerS = 2_500_000_000
	wantRequests(t, daemon, want)
	neighbours := pair.pod.IP(t, "neighbour", "show", "nud", "permanent")
	routes := pair.pod.IP(t, "route") + pair.pod.IP(t, "-6", "route")
	for text, all := range map[string]string{
		"10.1.0.1 dev net1 lladdr 02:00:00:00:aa:01":  neighbours,
		"fd00:1::1 dev net1 lladdr 02:00:00:00:aa:01": neighbours,
		"10.0.0.0/8 via 10.1.0.1 dev net1 onlink":     routes,
		"fd00::/16 via fd00:1::1 dev net1":            routes,
	} {
		if !strings.Contains(all, text) {
			t.Errorf("want %q in\n%s", text, all)
		}
	}
	for _, link := range []string{pair.host.IP(t, "link", "show", "veth0"), pair.pod.IP(t, "link", "show", "net1")} {
		if !strings.Contains(link, "mtu 1400 ") {
			t.Errorf("want MTU 1400: %s", link)
		}
	}
	printed := normal(t, outcome.Stdout)
	if mtu := printed["interfaces"].([]any)[1].(map[string]any)["mtu"]; mtu != 1400.0 {
		t.Errorf("result has MTU %v", mtu)
	}
	if routes, _ := json.Marshal(printed["routes"]); string(routes) !=
		`[{"dst":"10.0.0.0/8","gw":"10.1.0.1"},{"dst":"fd00::/16","gw":"fd00:1::1"}]` {
		t.Errorf("result has routes %s", routes)
	}
	// The runtime may retry an ADD.
	wantSuccess(t, pair.add(t, daemon, map[string]any{"mtu": 1400}))
}

// TestAddMovesChecksumsIntoThePodsKernel covers userspace datapaths, where checksums that a veth leaves to hardware
// arrive broken.
func TestAddMovesChecksumsIntoThePodsKernel(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	for _, userspace := range []bool{false, true} {
		pair.pod.Run(t, "ethtool", "-K", "net1", "tx", "on")
		daemon.Answer = onlyAdd(func() (proto.Message, error) {
			return &nodev1.AddReply{Rail: "rail1", UserspaceDatapath: userspace}, nil
		})
		wantSuccess(t, pair.add(t, daemon, nil))
		output := pair.pod.Run(t, "ethtool", "-k", "net1")
		if left := strings.Contains(output, "tx-checksumming: on"); left == userspace {
			t.Errorf("userspace datapath %v: checksum offload is %v", userspace, left)
		}
	}
}

func TestAddFailingInThePodIsUndone(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	daemon.Answer = gatewayReply
	pair.pod.Run(t, "sysctl", "-q", "-w", "net.ipv6.conf.net1.disable_ipv6=1")
	outcome := pair.add(t, daemon, map[string]any{
		"mtu": 1400, "routes": []map[string]any{{"dst": "10.0.0.0/8"}, {"dst": "fd00::/16"}},
	})
	wantFailure(t, outcome, 8, "net1 in "+pair.pod.Path(), "neighbour fd00:1::1: invalid argument; hint: inspect it with nsenter")
	wantRequests(t, daemon, request(pair.pod.Path(), bothParts...), &nodev1.DeleteRequest{Key: key1, Parts: bothParts})
	for _, link := range []string{pair.host.IP(t, "link", "show", "veth0"), pair.pod.IP(t, "link", "show", "net1")} {
		if !strings.Contains(link, "mtu 1500 ") {
			t.Errorf("MTU was not restored: %s", link)
		}
	}
	if left := pair.pod.IP(t, "neighbour", "show", "nud", "permanent"); strings.Contains(left, "10.1.0.1") {
		t.Errorf("neighbour was not removed: %s", left)
	}
	if left := pair.pod.IP(t, "route"); strings.Contains(left, "10.0.0.0/8") {
		t.Errorf("route was not removed: %s", left)
	}
}

func TestAddWithoutThePodsInterfaceIsUndone(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	daemon.Answer = gatewayReply
	pair.pod.IP(t, "link", "delete", "net1")
	wantFailure(t, pair.add(t, daemon, nil), 8, "Link not found; hint: list this plugin after ovs")
	wantRequests(t, daemon, request(pair.pod.Path(), bothParts...), &nodev1.DeleteRequest{Key: key1, Parts: bothParts})
}

func TestRefusalIsReturnedAndNothingIsDeleted(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	daemon.Answer = onlyAdd(func() (proto.Message, error) {
		return nil, cnitest.Refusal(codes.AlreadyExists, "address 10.1.0.5 belongs to pod tenant2/pod9",
			&nodev1.Problem{CniCode: 107, Details: "since 10:00", Hint: "delete that pod"})
	})
	wantFailure(t, pair.add(t, daemon, nil), 107, "address 10.1.0.5 belongs to pod tenant2/pod9; since 10:00; hint: delete that pod")
	wantRequests(t, daemon, request(pair.pod.Path(), bothParts...))
}

func TestAddTimeoutIsUndone(t *testing.T) {
	pair, daemon := newPair(t), cnitest.Start(t)
	daemon.Answer = func(ctx context.Context, request proto.Message) (proto.Message, error) {
		if _, ok := request.(*nodev1.AddRequest); ok {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}
	outcome := pair.add(t, daemon, map[string]any{"timeoutSeconds": 1})
	wantFailure(t, outcome, 11, "railwrightd did not finish within 1s", "hint:")
	wantRequests(t, daemon, request(pair.pod.Path(), bothParts...), &nodev1.DeleteRequest{Key: key1, Parts: bothParts})
}

func TestHostNamespaceIsRefusedFirst(t *testing.T) {
	daemon := cnitest.Start(t)
	outcome := cnitest.Call{
		Program: pluginPath(t, "railwright-cni"), Command: "ADD", ContainerID: "c1", Netns: "/proc/self/ns/net", Interface: "net1",
		Args: pod1Args, Config: config(daemon, "1.1.0", map[string]any{"prevResult": result("1.1.0", "/proc/self/ns/net")}),
	}.Do(t)
	wantFailure(t, outcome, 8, "got the host's: /proc/self/ns/net")
	wantRequests(t, daemon)
}
