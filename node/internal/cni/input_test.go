package cni

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

// prepareWith prepares an ADD without a daemon.
func prepareWith(t *testing.T, arguments string, fields map[string]any) (*prepared, *types.Error) {
	t.Helper()
	config := map[string]any{"cniVersion": "1.1.0", "name": "rail1", "type": "ovs-provider", "prevResult": result("1.1.0", "/run/netns/p")}
	for name, value := range fields {
		config[name] = value
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := plugins["ovs-provider"].prepare(&skel.CmdArgs{
		ContainerID: "c1", Netns: "/run/netns/p", IfName: "net1", Args: arguments, StdinData: text,
	})
	var cniError *types.Error
	if err != nil && !errors.As(err, &cniError) {
		t.Fatalf("%v should be a CNI error", err)
	}
	return ready, cniError
}

func TestInvalidFieldsAreNamedWithTheirValue(t *testing.T) {
	for _, test := range []struct {
		field string
		value any
		want  string
	}{
		{"socket", 7, "socket must be an absolute path, got 7"},
		{"socket", "run/x.sock", `socket must be an absolute path, got "run/x.sock"`},
		{"socket", "/" + strings.Repeat("x", 120), "socket must be"},
		{"stateDir", "lib", `stateDir must be an absolute path, got "lib"`},
		{"stateDir", "/a\nb", `stateDir must be an absolute path, got "/a\nb"`},
		{"timeoutSeconds", "5s", `timeoutSeconds must be seconds above 0 and at most 300, got "5s"`},
		{"timeoutSeconds", 0, "at most 300, got 0"},
		{"timeoutSeconds", -1, "at most 300, got -1"},
		{"connectTimeoutSeconds", 1e9, "at most 300, got 1e+09"},
		{"maxRate", 25, `maxRate must be a rate like "25Gb/s", got 25`},
		{"maxRate", "25Gb", `got "25Gb"`},
		{"maxRate", "Gb/s", `got "Gb/s"`},
		{"maxRate", "1e3Gb/s", `got "1e3Gb/s"`},
		{"maxRate", "0Gb/s", "1 Mb/s to 4294 Gb/s"},
		{"maxRate", "99999Gb/s", "1 Mb/s to 4294 Gb/s"},
		{"mtu", "1400", `mtu must be a number of bytes, got "1400"`},
		{"mtu", 1400.5, "got 1400.5"},
		{"mtu", 100, "1280 to 65535 bytes"},
		{"routes", "10.0.0.0/8", "routes must be"},
		{"routes", []any{map[string]any{"dst": "10.0.0.1/8"}}, "without host bits"},
		{"routes", []any{map[string]any{"dst": "10.0.0.0/8", "gw": "10.1.0.9"}}, `a list like [{"dst"`},
		{"routes", []any{nil}, "got [null]"},
		{"deviceID", "0000:08:00.9", `deviceID must be a PCI address like 0000:08:00.2, got "0000:08:00.9"`},
		{"deviceID", "0000:08:00:2", `got "0000:08:00:2"`},
		{"deviceID", "$(reboot)", `got "$(reboot)"`},
	} {
		_, err := prepareWith(t, pod1Args, map[string]any{test.field: test.value})
		if err == nil || err.Code != 7 || !strings.Contains(err.Msg, test.want) || !strings.HasPrefix(err.Details, "hint: ") {
			t.Errorf("%s %v: %+v", test.field, test.value, err)
		}
	}
}

func TestForeignFieldsAreIgnored(t *testing.T) {
	ready, err := prepareWith(t, pod1Args, map[string]any{
		"pciBusID": 7, "runtimeConfig": []any{1}, "bridge": nil, "Socket": 7, "capabilities": map[string]any{"x": true}, "ipam": nil,
	})
	if err != nil || ready.settings.Socket != DefaultSocket {
		t.Errorf("%v", err)
	}
}

func TestValidFieldsAreParsed(t *testing.T) {
	ready, err := prepareWith(t, pod1Args, map[string]any{
		"socket": "/s", "stateDir": "/var/lib/rw", "timeoutSeconds": 2.5, "connectTimeoutSeconds": 0.5, "maxRate": "400Gb/s",
		"deviceID": "mlx5_core.sf.4", "routes": nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Network: "rail1", Version: "1.1.0", Socket: "/s", Tombstones: "/var/lib/rw/tombstones",
		ConnectTimeout: 500 * time.Millisecond, Timeout: 2500 * time.Millisecond,
	}
	if ready.settings != want || ready.wishes.MaxRate != 400_000_000_000 || ready.wishes.DeviceID != "" {
		t.Errorf("%+v", ready)
	}
}

func TestPodIsParsedFromArguments(t *testing.T) {
	for arguments, want := range map[string]attachment.Pod{
		pod1Args: {Namespace: "tenant1", Name: "pod1", UID: "u-1"},
		";K8S_POD_UID=a;K8S_POD_UID=a;;K8S_POD_NAME=web-0.x;K8S_POD_NAMESPACE=t;=;X": {Namespace: "t", Name: "web-0.x", UID: "a"},
		"K8S_POD_NAME=p;K8S_POD_NAMESPACE=t;K8S_POD_UID=":                            {Namespace: "t", Name: "p"},
	} {
		if pod, err := readPod(arguments); err != nil || pod != want {
			t.Errorf("%s: %+v %v", arguments, pod, err)
		}
	}
	base := "K8S_POD_NAME=p;K8S_POD_NAMESPACE="
	for arguments, message := range map[string]string{
		"":                                "CNI_ARGS must have K8S_POD_NAMESPACE",
		"K8S_POD_NAMESPACE=t":             "CNI_ARGS must have K8S_POD_NAME",
		base + "$(reboot)":                `K8S_POD_NAMESPACE in CNI_ARGS must be a Kubernetes name, got "$(reboot)"`,
		base + "t=x":                      `got "t=x"`,
		base + "é":                        "must be a Kubernetes name",
		base + "tenant1\nactions=x":       `"tenant1\nactions=x"`,
		base + strings.Repeat("a", 256):   "must be a Kubernetes name",
		base + "a;K8S_POD_NAMESPACE=b":    `must have a single value, got "a" and "b"`,
		base + "a;K8S_POD_UID=../../x":    `K8S_POD_UID in CNI_ARGS must be a Kubernetes name, got "../../x"`,
		"X=" + strings.Repeat("a", 20000): "at most 16384",
	} {
		_, err := prepareWith(t, arguments, nil)
		if err == nil || err.Code != 4 || !strings.Contains(err.Msg, message) {
			t.Errorf("%.60q: %+v", arguments, err)
		}
	}
}

// editResult returns a result with a change.
func editResult(edit func(interfaces, addresses []map[string]any, whole map[string]any)) map[string]any {
	whole := result("1.1.0", "/run/netns/p")
	edit(whole["interfaces"].([]map[string]any), whole["ips"].([]map[string]any), whole)
	return map[string]any{"prevResult": whole}
}

func TestInvalidPrevResultIsRefused(t *testing.T) {
	type list = []map[string]any
	for _, test := range []struct {
		want   string
		fields map[string]any
	}{
		{"prevResult is required", map[string]any{"prevResult": nil}},
		{"parse prevResult", map[string]any{"prevResult": "x"}},
		{"parse prevResult", editResult(func(_, _ list, whole map[string]any) { whole["cniVersion"] = "0.4.0" })},
		{"must not contain null", editResult(func(_, _ list, whole map[string]any) { whole["interfaces"] = []any{nil} })},
		{"interfaces, ips", editResult(func(_, _ list, whole map[string]any) { whole["ips"] = []any{nil} })},
		{"ips and routes", editResult(func(_, _ list, whole map[string]any) { whole["routes"] = []any{nil} })},
		{`must have an interface "net1" with a sandbox`, editResult(func(interfaces, _ list, _ map[string]any) { interfaces[1]["name"] = "eth9" })},
		{`must have a single interface "net1"`, editResult(func(interfaces, _ list, whole map[string]any) {
			whole["interfaces"] = append(interfaces, interfaces[1])
		})},
		{`without a sandbox, got 2`, editResult(func(interfaces, _ list, whole map[string]any) {
			whole["interfaces"] = append(interfaces, interfaces[0])
		})},
		{`without a sandbox, got 0`, editResult(func(interfaces, _ list, whole map[string]any) { interfaces[0]["sandbox"] = "/x" })},
		{`MAC address must look like 02:00:00:00:01:10, got ""`, editResult(func(interfaces, _ list, _ map[string]any) { delete(interfaces[1], "mac") })},
		{"must be unicast", editResult(func(interfaces, _ list, _ map[string]any) { interfaces[1]["mac"] = "ff:ff:ff:ff:ff:ff" })},
		{"interface index must be below 2, got 7", editResult(func(_, addresses list, _ map[string]any) { addresses[0]["interface"] = 7 })},
		{"must have an address", editResult(func(_, _ list, whole map[string]any) { whole["ips"] = list{} })},
		{"second of its family", editResult(func(_, addresses list, _ map[string]any) { addresses[1]["address"] = "10.1.0.6/24" })},
		{"must be of the same family", editResult(func(_, addresses list, whole map[string]any) {
			addresses[0]["gateway"] = "fd00:1::1"
			whole["ips"] = addresses[:1]
		})},
		{"invalid CIDR address: 10.1.", editResult(func(_, addresses list, _ map[string]any) { addresses[0]["address"] = "10.1.0.5" })},
	} {
		_, err := prepareWith(t, pod1Args, test.fields)
		if err == nil || err.Code != 7 || !strings.Contains(err.Msg, test.want) || !strings.HasPrefix(err.Details, "hint: ") {
			t.Errorf("%s: %+v", test.want, err)
		}
	}
}

func TestSingleFamilyAndMissingGatewayAreAccepted(t *testing.T) {
	ready, err := prepareWith(t, pod1Args, editResult(func(_, addresses []map[string]any, whole map[string]any) {
		delete(addresses[1], "gateway")
		delete(addresses[1], "interface")
		whole["ips"] = addresses[1:]
	}))
	if err != nil || !reflect.DeepEqual(ready.request.GetAddresses(), []string{"fd00:1::5"}) || len(ready.request.GetGateways()) != 0 {
		t.Fatalf("%v %v", ready, err)
	}
	_, err = prepareWith(t, pod1Args, map[string]any{
		"routes": []any{map[string]any{"dst": "10.0.0.0/8"}},
		"prevResult": fromText(`{"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/32"}],
			"interfaces": [{"name": "h"}, {"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/x"}]}`),
	})
	if err == nil || !strings.Contains(err.Msg, "routes must be a destination with a gateway of its family in prevResult, got 10.0.0.0/8") {
		t.Errorf("%v", err)
	}
}

func fromText(text string) (value map[string]any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	return value
}

// TestRecordedResultsAreParsed uses output of ovs-cni 0.39.0 with host-local and tuning; test/chain records it.
func TestRecordedResultsAreParsed(t *testing.T) {
	for _, cniVersion := range []string{"0.4.0", "1.1.0"} {
		recorded, err := os.ReadFile("testdata/result-" + cniVersion + ".json")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(
			"HOST-INTERFACE", "veth752769a5", "HOST-MAC", "ba:5f:64:7e:8c:1d", "POD-MAC", "0a:58:0a:01:00:02",
			"NETNS", "/run/netns/p",
		).Replace(string(recorded))
		ready, cniError := prepareWith(t, pod1Args, map[string]any{"cniVersion": cniVersion, "prevResult": fromText(text)})
		if cniError != nil {
			t.Fatal(cniError)
		}
		want := &nodev1.AddRequest{
			Key:   &nodev1.Key{Network: "rail1", ContainerId: "c1", Interface: "net1"},
			Parts: []nodev1.Part{nodev1.Part_PART_FLOWS}, Pod: &nodev1.Pod{Namespace: "tenant1", Name: "pod1", Uid: "u-1"},
			Netns: "/run/netns/p", HostInterface: "veth752769a5", Mac: "0a:58:0a:01:00:02",
			Addresses: []string{"10.1.0.2", "fd00:1::2"}, Gateways: []string{"10.1.0.1", "fd00:1::1"},
		}
		if !proto.Equal(ready.request, want) {
			t.Errorf("%s: %v\nwant %v", cniVersion, ready.request, want)
		}
	}
}
