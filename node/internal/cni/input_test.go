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

// prepareWith an ADD of these, without any daemon.
func prepareWith(t *testing.T, arguments string, fields map[string]any) (*prepared, *types.Error) {
	t.Helper()
	given := map[string]any{"cniVersion": "1.1.0", "name": "rail1", "type": "ovs-provider", "prevResult": result("1.1.0", "/run/netns/p")}
	for name, value := range fields {
		given[name] = value
	}
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := plugins["ovs-provider"].prepare(&skel.CmdArgs{
		ContainerID: "c1", Netns: "/run/netns/p", IfName: "net1", Args: arguments, StdinData: text,
	})
	var cniError *types.Error
	if err != nil && !errors.As(err, &cniError) {
		t.Fatalf("%v is no CNI error", err)
	}
	return ready, cniError
}

func TestWrongFieldsOfOursAreNamedWithTheirValue(t *testing.T) {
	for _, test := range []struct {
		field string
		value any
		want  string
	}{
		{"socket", 7, "socket is 7: expected an absolute path"},
		{"socket", "run/x.sock", `socket is "run/x.sock"`},
		{"socket", "/" + strings.Repeat("x", 120), "socket is"},
		{"stateDir", "lib", `stateDir is "lib"`},
		{"stateDir", "/a\nb", `stateDir is "/a\nb"`},
		{"timeoutSeconds", "5s", `timeoutSeconds is "5s": expected seconds`},
		{"timeoutSeconds", 0, "timeoutSeconds is 0"},
		{"timeoutSeconds", -1, "timeoutSeconds is -1"},
		{"connectTimeoutSeconds", 1e9, "connectTimeoutSeconds is 1e+09"},
		{"maxRate", 25, `maxRate is 25: expected a rate as "25Gb/s"`},
		{"maxRate", "25Gb", `maxRate is "25Gb"`},
		{"maxRate", "Gb/s", `maxRate is "Gb/s"`},
		{"maxRate", "1e3Gb/s", `maxRate is "1e3Gb/s"`},
		{"maxRate", "0Gb/s", "1 Mb/s to 10000 Gb/s"},
		{"maxRate", "99999Gb/s", "1 Mb/s to 10000 Gb/s"},
		{"mtu", "1400", `mtu is "1400": expected bytes`},
		{"mtu", 1400.5, "mtu is 1400.5"},
		{"mtu", 100, "1280 to 65535 bytes"},
		{"routes", "10.0.0.0/8", "routes is"},
		{"routes", []any{map[string]any{"dst": "10.0.0.1/8"}}, "no bit beyond the prefix"},
		{"routes", []any{map[string]any{"dst": "10.0.0.0/8", "gw": "10.1.0.9"}}, `a list as [{"dst"`},
		{"routes", []any{nil}, "routes is [null]"},
		{"deviceID", "0000:08:00.9", `deviceID is "0000:08:00.9"`},
		{"deviceID", "0000:08:00:2", `deviceID is "0000:08:00:2"`},
		{"deviceID", "$(reboot)", `deviceID is "$(reboot)"`},
	} {
		_, err := prepareWith(t, pod1Args, map[string]any{test.field: test.value})
		if err == nil || err.Code != 7 || !strings.Contains(err.Msg, test.want) || !strings.HasPrefix(err.Details, "hint: ") {
			t.Errorf("%s %v: %+v", test.field, test.value, err)
		}
	}
}

func TestFieldsOfOthersAreLeftAlone(t *testing.T) {
	ready, err := prepareWith(t, pod1Args, map[string]any{
		"pciBusID": 7, "runtimeConfig": []any{1}, "bridge": nil, "Socket": 7, "capabilities": map[string]any{"x": true}, "ipam": nil,
	})
	if err != nil || ready.settings.Socket != DefaultSocket {
		t.Errorf("%v", err)
	}
}

func TestGoodFieldsAreTaken(t *testing.T) {
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

func TestThePodIsReadFromItsArguments(t *testing.T) {
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
		"":                                "CNI_ARGS has no K8S_POD_NAMESPACE",
		"K8S_POD_NAMESPACE=t":             "CNI_ARGS has no K8S_POD_NAME",
		base + "$(reboot)":                `K8S_POD_NAMESPACE is "$(reboot)"`,
		base + "t=x":                      `K8S_POD_NAMESPACE is "t=x"`,
		base + "é":                        "no name that Kubernetes gives",
		base + "tenant1\nactions=x":       `"tenant1\nactions=x"`,
		base + strings.Repeat("a", 256):   "no name that Kubernetes gives",
		base + "a;K8S_POD_NAMESPACE=b":    `given twice, as "a" and as "b"`,
		base + "a;K8S_POD_UID=../../x":    `K8S_POD_UID is "../../x"`,
		"X=" + strings.Repeat("a", 20000): "at most 16384",
	} {
		_, err := prepareWith(t, arguments, nil)
		if err == nil || err.Code != 4 || !strings.Contains(err.Msg, message) {
			t.Errorf("%.60q: %+v", arguments, err)
		}
	}
}

// edited gives a result with one thing changed.
func edited(edit func(interfaces, addresses []map[string]any, whole map[string]any)) map[string]any {
	whole := result("1.1.0", "/run/netns/p")
	edit(whole["interfaces"].([]map[string]any), whole["ips"].([]map[string]any), whole)
	return map[string]any{"prevResult": whole}
}

func TestAResultThatDoesNotSayWhatThePodHasIsRefused(t *testing.T) {
	type list = []map[string]any
	for _, test := range []struct {
		want   string
		fields map[string]any
	}{
		{"there is no prevResult", map[string]any{"prevResult": nil}},
		{"prevResult cannot be read", map[string]any{"prevResult": "x"}},
		{"prevResult cannot be read", edited(func(_, _ list, whole map[string]any) { whole["cniVersion"] = "0.4.0" })},
		{"a null among interfaces", edited(func(_, _ list, whole map[string]any) { whole["interfaces"] = []any{nil} })},
		{"null among interfaces, ips", edited(func(_, _ list, whole map[string]any) { whole["ips"] = []any{nil} })},
		{"ips or routes", edited(func(_, _ list, whole map[string]any) { whole["routes"] = []any{nil} })},
		{`is "net1" with a sandbox`, edited(func(interfaces, _ list, _ map[string]any) { interfaces[1]["name"] = "eth9" })},
		{`two interfaces "net1"`, edited(func(interfaces, _ list, whole map[string]any) {
			whole["interfaces"] = append(interfaces, interfaces[1])
		})},
		{`2 interfaces without`, edited(func(interfaces, _ list, whole map[string]any) {
			whole["interfaces"] = append(interfaces, interfaces[0])
		})},
		{`0 interfaces without`, edited(func(interfaces, _ list, whole map[string]any) { interfaces[0]["sandbox"] = "/x" })},
		{`"" is not a MAC address`, edited(func(interfaces, _ list, _ map[string]any) { delete(interfaces[1], "mac") })},
		{"not the address of one", edited(func(interfaces, _ list, _ map[string]any) { interfaces[1]["mac"] = "ff:ff:ff:ff:ff:ff" })},
		{"interface 7 of 2", edited(func(_, addresses list, _ map[string]any) { addresses[0]["interface"] = 7 })},
		{"has no address", edited(func(_, _ list, whole map[string]any) { whole["ips"] = list{} })},
		{"one of each family", edited(func(_, addresses list, _ map[string]any) { addresses[1]["address"] = "10.1.0.6/24" })},
		{"of the other family", edited(func(_, addresses list, whole map[string]any) {
			addresses[0]["gateway"] = "fd00:1::1"
			whole["ips"] = addresses[:1]
		})},
		{"invalid CIDR address: 10.1.", edited(func(_, addresses list, _ map[string]any) { addresses[0]["address"] = "10.1.0.5" })},
	} {
		_, err := prepareWith(t, pod1Args, test.fields)
		if err == nil || err.Code != 7 || !strings.Contains(err.Msg, test.want) || !strings.HasPrefix(err.Details, "hint: ") {
			t.Errorf("%s: %+v", test.want, err)
		}
	}
}

func TestAResultOfOneFamilyOrWithoutGatewayIsEnough(t *testing.T) {
	ready, err := prepareWith(t, pod1Args, edited(func(_, addresses []map[string]any, whole map[string]any) {
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
	if err == nil || !strings.Contains(err.Msg, "routes is 10.0.0.0/8: expected a gateway of its family in prevResult") {
		t.Errorf("%v", err)
	}
}

func fromText(text string) (value map[string]any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	return value
}

// What stock ovs-cni 0.39.0 with host-local and tuning has printed; test/chain records it.
func TestRecordedResultsAreUnderstood(t *testing.T) {
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
