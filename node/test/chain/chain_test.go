package chain

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/testlab"
)

var (
	flows  = []nodev1.Part{nodev1.Part_PART_FLOWS}
	routes = []nodev1.Part{nodev1.Part_PART_ROUTES}
)

// sourceChain returns the plugins after ovs in the reference chain: our two providers, here preceded by tuning.
func sourceChain() []map[string]any {
	return []map[string]any{
		{"type": "tuning", "sysctl": map[string]string{"net.ipv4.conf.net1.arp_notify": "1"}},
		{"type": "ovs-provider-cli"}, {"type": "frr-provider-cli"},
	}
}

func (l *lab) write(t *testing.T, conflist []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.Path("net.d"), network+".conflist"), conflist, 0o644); err != nil {
		t.Fatal(err)
	}
}

// expectedRequest returns the request that the plugins must send, from the state of the pod and the switch.
func (l *lab) expectedRequest(t *testing.T, pod *testlab.Namespace, key *nodev1.Key) *nodev1.AddRequest {
	t.Helper()
	var links []struct {
		Address   string `json:"address"`
		Addresses []struct {
			Scope, Local string
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(pod.IP(t, "-json", "address", "show", "net1")), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v %v", links, err)
	}
	ports := l.ports(t)
	if len(ports) != 1 {
		t.Fatalf("ports %v", ports)
	}
	request := &nodev1.AddRequest{
		Key: key, Pod: &nodev1.Pod{Namespace: "tenant1", Name: "pod1", Uid: "u-1"}, Netns: pod.Path(),
		HostInterface: ports[0], Mac: links[0].Address, Gateways: []string{"10.1.0.1", "fd00:1::1"},
	}
	for _, address := range links[0].Addresses {
		if address.Scope == "global" {
			request.Addresses = append(request.Addresses, address.Local)
		}
	}
	return request
}

func withParts(request *nodev1.AddRequest, parts []nodev1.Part) *nodev1.AddRequest {
	copied := proto.CloneOf(request)
	copied.Parts = parts
	return copied
}

func wantAsked(t *testing.T, lab *lab, want ...proto.Message) {
	t.Helper()
	requests := lab.daemon.Requests()
	for index := range max(len(requests), len(want)) {
		if index >= len(requests) || index >= len(want) || !proto.Equal(requests[index], want[index]) {
			t.Fatalf("asked\n%v\nwant\n%v", requests, want)
		}
	}
}

// must runs a verb with cnitool, returns its output, and fails the test if the verb fails.
func (l *lab) must(t *testing.T, verb string, pod *testlab.Namespace) string {
	t.Helper()
	output, err := l.cnitool(verb, pod)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// gatewayReply returns a reply that makes the plugin write the gateway's MAC address into the pod.
func gatewayReply(_ context.Context, request proto.Message) (proto.Message, error) {
	if _, ok := request.(*nodev1.AddRequest); ok {
		return &nodev1.AddReply{Rail: "rail1", Tenant: "ns:tenant1", GatewayMac: bridgeMAC}, nil
	}
	return nil, nil
}

func TestTheSourcesChainRunsUnchanged(t *testing.T) {
	lab := newLab(t, 1)
	lab.daemon.Answer = gatewayReply
	pod := lab.pods[0]
	lab.write(t, lab.conflist(t, "0.4.0", sourceChain()...))
	printed := lab.must(t, "add", pod)
	requests := lab.daemon.Requests()
	if len(requests) != 2 {
		t.Fatalf("asked %v", requests)
	}
	key := requests[0].(*nodev1.AddRequest).GetKey()
	if key.GetNetwork() != network || key.GetInterface() != "net1" || !strings.HasPrefix(key.GetContainerId(), "cnitool-") {
		t.Errorf("key %v", key)
	}
	request := lab.expectedRequest(t, pod, key)
	for index, parts := range [][]nodev1.Part{flows, routes} {
		if want := withParts(request, parts); !proto.Equal(requests[index], want) {
			t.Errorf("asked %v\nwant  %v", requests[index], want)
		}
	}
	wantRecorded(t, "result-0.4.0.json", printed, request)
	wantGatewayKnown(t, pod)
	lab.must(t, "check", pod)
	wantAsked(t, lab, &nodev1.CheckRequest{Key: key, Parts: flows}, &nodev1.CheckRequest{Key: key, Parts: routes})
	undone := []proto.Message{&nodev1.DeleteRequest{Key: key, Parts: routes}, &nodev1.DeleteRequest{Key: key, Parts: flows}}
	for range 2 { // the second DEL finds nothing, not even the runtime's cache
		lab.must(t, "del", pod)
		wantAsked(t, lab, undone...)
		if ports := lab.ports(t); len(ports) != 0 {
			t.Errorf("ports %v", ports)
		}
	}
}

func TestBothPartsInOneCall(t *testing.T) {
	lab := newLab(t, 1)
	lab.daemon.Answer = gatewayReply
	pod := lab.pods[0]
	lab.write(t, lab.conflist(t, "1.0.0", map[string]any{
		"type": "railwright-cni", "maxRate": "10Gb/s", "routes": []map[string]string{{"dst": "fd00::/16"}},
	}))
	printed := lab.must(t, "add", pod)
	requests := lab.daemon.Requests()
	if len(requests) != 1 {
		t.Fatalf("asked %v", requests)
	}
	want := withParts(lab.expectedRequest(t, pod, requests[0].(*nodev1.AddRequest).GetKey()), []nodev1.Part{flows[0], routes[0]})
	want.MaxRateBitsPerS = 10_000_000_000
	if !proto.Equal(requests[0], want) {
		t.Errorf("asked %v\nwant  %v", requests[0], want)
	}
	if found := pod.IP(t, "-6", "route"); !strings.Contains(found, "fd00::/16 via fd00:1::1 dev net1") {
		t.Errorf("routes %s", found)
	}
	if !strings.Contains(printed, `"dst": "fd00::/16"`) {
		t.Errorf("result lacks the route: %s", printed)
	}
	lab.must(t, "del", pod)
	wantAsked(t, lab, &nodev1.DeleteRequest{Key: want.GetKey(), Parts: want.GetParts()})
}

// wantGatewayKnown checks that the pod has permanent neighbour entries of the gateway, so that its first packet needs
// no ARP or neighbour discovery.
func wantGatewayKnown(t *testing.T, pod *testlab.Namespace) {
	t.Helper()
	for _, gateway := range []string{"10.1.0.1", "fd00:1::1"} {
		if found := pod.IP(t, "neighbour", "show", gateway); !strings.Contains(found, "lladdr "+bridgeMAC+" PERMANENT") {
			t.Errorf("neighbour %s: %s", gateway, found)
		}
	}
}

// wantRecorded compares a result with the recorded one, in which names replace the values that change. The plugins' own
// tests read the recorded results.
func wantRecorded(t *testing.T, name, printed string, request *nodev1.AddRequest) {
	t.Helper()
	var result struct {
		Interfaces []struct{ Mac string }
	}
	if err := json.Unmarshal([]byte(printed), &result); err != nil || len(result.Interfaces) != 2 {
		t.Fatalf("%v: %s", err, printed)
	}
	masked := strings.NewReplacer(
		request.GetHostInterface(), "HOST-INTERFACE", request.GetNetns(), "NETNS",
		result.Interfaces[0].Mac, "HOST-MAC", request.GetMac(), "POD-MAC",
	).Replace(printed)
	path := filepath.Join("..", "..", "internal", "cni", "testdata", name)
	if os.Getenv("RAILWRIGHT_RECORD") != "" {
		if err := os.WriteFile(path, []byte(masked+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(masked) != strings.TrimSpace(string(recorded)) {
		t.Errorf("%s has changed (RAILWRIGHT_RECORD=1 records it anew):\n%s", name, masked)
	}
}
