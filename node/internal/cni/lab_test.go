package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
)

const pod1Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1;K8S_POD_UID=u-1;K8S_POD_INFRA_CONTAINER_ID=c1"

// TestMain runs as a plugin if this program is called by a plugin's name.
func TestMain(m *testing.M) {
	if _, ok := plugins[filepath.Base(os.Args[0])]; ok {
		if failed := Run(filepath.Base(os.Args[0])); failed != nil {
			_ = failed.Print()
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv(listenVariable); path != "" {
		listenUntilKilled(path)
	}
	os.Exit(m.Run())
}

// pluginPath returns a path of this program with a plugin's name.
func pluginPath(t testing.TB, name string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// config returns the configuration of a plugin with this daemon. more adds fields.
func config(daemon *cnitest.Daemon, version string, more map[string]any) string {
	fields := map[string]any{
		"cniVersion": version, "name": "sriov_pf1_vf", "type": "railwright-cni",
		"socket": daemon.Socket(), "stateDir": daemon.Folder,
		// Multus adds these to every plugin of the list.
		"deviceID": "0000:08:00.2", "pciBusID": "0000:08:00.2",
	}
	for name, value := range more {
		fields[name] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// result returns a result of ovs with an ipam, as the chain's tests record it.
func result(version, sandbox string) map[string]any {
	addresses := []map[string]any{
		{"interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1"},
		{"interface": 1, "address": "fd00:1::5/64", "gateway": "fd00:1::1"},
	}
	if strings.HasPrefix(version, "0.") {
		addresses[0]["version"], addresses[1]["version"] = "4", "6"
	}
	return map[string]any{
		"cniVersion": version,
		"interfaces": []map[string]any{
			{"name": "veth0", "mac": "02:00:00:00:00:99"},
			{"name": "net1", "mac": "02:00:00:00:01:10", "sandbox": sandbox},
		},
		"ips": addresses, "dns": map[string]any{},
	}
}

// pair is a host and a pod connected by a veth, as ovs leaves it: veth0 on the host, net1 in the pod.
type pair struct{ host, pod *testlab.Namespace }

func newPair(t *testing.T) pair {
	made := pair{testlab.NewNamespace(t, "host"), testlab.NewNamespace(t, "pod")}
	testlab.Cable(t, made.host, "veth0", made.pod, "net1")
	made.pod.IP(t, "address", "add", "10.1.0.5/24", "dev", "net1")
	made.pod.IP(t, "address", "add", "fd00:1::5/64", "dev", "net1", "nodad")
	return made
}

func (p pair) add(t *testing.T, daemon *cnitest.Daemon, more map[string]any) cnitest.Outcome {
	t.Helper()
	fields := map[string]any{"prevResult": result("1.1.0", p.pod.Path())}
	for name, value := range more {
		fields[name] = value
	}
	return cnitest.Call{
		Program: pluginPath(t, "railwright-cni"), Host: p.host, Command: "ADD", ContainerID: "c1", Netns: p.pod.Path(),
		Interface: "net1", Args: pod1Args, Config: config(daemon, "1.1.0", fields),
	}.Do(t)
}

func wantRequests(t *testing.T, daemon *cnitest.Daemon, want ...proto.Message) {
	t.Helper()
	requests := daemon.Requests()
	if len(requests) != len(want) {
		t.Fatalf("got %d requests: %v\nwant %d", len(requests), requests, len(want))
	}
	for index := range want {
		if !proto.Equal(requests[index], want[index]) {
			t.Errorf("got  %s %v\nwant %s %v", kind(requests[index]), requests[index], kind(want[index]), want[index])
		}
	}
}

func kind(message proto.Message) string { return string(message.ProtoReflect().Descriptor().Name()) }

func wantFailure(t *testing.T, outcome cnitest.Outcome, code uint, wants ...string) {
	t.Helper()
	if outcome.Err == nil {
		t.Fatalf("succeeded with %s; want code %d", outcome.Stdout, code)
	}
	output := fmt.Sprintf("%d %s; %s", outcome.Err.Code, outcome.Err.Msg, outcome.Err.Details)
	t.Log(output)
	if outcome.Err.Code != code {
		t.Errorf("code %d, want %d", outcome.Err.Code, code)
	}
	for _, word := range wants {
		if !strings.Contains(output, word) {
			t.Errorf("%q does not contain %q", output, word)
		}
	}
}

func wantSuccess(t *testing.T, outcome cnitest.Outcome) {
	t.Helper()
	if outcome.Err != nil {
		t.Fatalf("failed: %d %s; %s", outcome.Err.Code, outcome.Err.Msg, outcome.Err.Details)
	}
	if outcome.Stderr != "" {
		t.Errorf("standard error: %s", outcome.Stderr)
	}
}

var key1 = &nodev1.Key{Network: "sriov_pf1_vf", ContainerId: "c1", Interface: "net1"}

var bothParts = []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES}
