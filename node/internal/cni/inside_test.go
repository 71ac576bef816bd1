package cni

import (
	"strings"
	"testing"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
)

// TestCheckInspectsThePod changes the settings that the flows depend on.
func TestCheckInspectsThePod(t *testing.T) {
	daemon := cnitest.Start(t)
	made := newPair(t)
	made.pod.IP(t, "link", "set", "net1", "address", "02:00:00:00:01:10")
	wishes := map[string]any{"mtu": 1400, "routes": []any{map[string]any{"dst": "10.2.0.0/16"}, map[string]any{"dst": "fd00:2::/64"}}}
	wantSuccess(t, made.add(t, daemon, wishes))
	daemon.Requests()
	fields := map[string]any{"prevResult": result("1.1.0", made.pod.Path())}
	for name, value := range wishes {
		fields[name] = value
	}
	call := cnitest.Call{
		Program: pluginPath(t, "railwright-cni"), Host: made.host, Command: "CHECK", ContainerID: "c1", Netns: made.pod.Path(),
		Interface: "net1", Args: pod1Args, Config: config(daemon, "1.1.0", fields),
	}
	wantSuccess(t, call.Do(t))
	for _, step := range []struct{ breaks, mends, want string }{
		{"route del 10.2.0.0/16", "route add 10.2.0.0/16 via 10.1.0.1 dev net1", "no route to 10.2.0.0/16 through net1"},
		{"address del 10.1.0.5/24 dev net1", "address add 10.1.0.5/24 dev net1", "lacks address 10.1.0.5"},
		{"-6 address del fd00:1::5/64 dev net1", "-6 address add fd00:1::5/64 dev net1 nodad", "lacks address fd00:1::5"},
		{"link set net1 mtu 1390", "link set net1 mtu 1400", "must have an MTU of 1400 bytes, got 1390"},
		{"link set net1 address 02:00:00:00:01:11", "link set net1 address 02:00:00:00:01:10", "must have MAC address 02:00:00:00:01:10, got 02:00:00:00:01:11"},
		{"link set net1 name net9", "link set net9 name net1", "pod has no interface net1"},
		{"link set net1 down", "", "net1 in the pod is down"},
	} {
		made.pod.IP(t, strings.Fields(step.breaks)...)
		wantFailure(t, call.Do(t), CodeDifferent, step.want, "delete the pod")
		if step.mends != "" {
			made.pod.IP(t, strings.Fields(step.mends)...)
		}
	}
	both := []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES}
	for _, message := range daemon.Requests() {
		if request, ok := message.(*nodev1.CheckRequest); !ok || len(request.GetParts()) != len(both) {
			t.Errorf("got request %v", message)
		}
	}
	call.Config = config(daemon, "1.1.0", nil)
	wantFailure(t, call.Do(t), 7, "prevResult is required")
}
