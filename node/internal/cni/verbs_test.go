package cni

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
)

func answering(message proto.Message, err error) func(context.Context, proto.Message) (proto.Message, error) {
	return func(context.Context, proto.Message) (proto.Message, error) { return message, err }
}

func TestDelNeedsNoNamespaceAndNoResult(t *testing.T) {
	daemon := cnitest.Start(t)
	want := &nodev1.DeleteRequest{Key: key1, Parts: []nodev1.Part{nodev1.Part_PART_ROUTES}}
	for name, more := range map[string]map[string]any{
		"nothing":         nil,
		"damaged result":  {"prevResult": "gone"},
		"a wish that ADD": {"maxRate": 7, "mtu": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			wantSuccess(t, bare(t, daemon, "DEL", more).Do(t))
			wantRequests(t, daemon, want)
		})
	}
	call := bare(t, daemon, "DEL", nil)
	call.Netns = "/run/netns/gone"
	wantSuccess(t, call.Do(t))
	wantRequests(t, daemon, want)
}

func TestRefusedDelIsReturned(t *testing.T) {
	daemon := cnitest.Start(t)
	daemon.Answer = answering(nil, cnitest.Refusal(codes.Internal, "state folder /var/lib/railwright: no space left on device",
		&nodev1.Problem{CniCode: 11, Hint: "free some"}))
	wantFailure(t, bare(t, daemon, "DEL", nil).Do(t), 11, "no space left on device; hint: free some")
	if left := tombstonesOf(t, daemon); len(left) != 0 {
		t.Errorf("tombstones %v", left)
	}
}

func TestCheckReturnsDifferences(t *testing.T) {
	daemon := cnitest.Start(t)
	call := bare(t, daemon, "CHECK", nil)
	call.Netns = "/run/netns/p"
	wantSuccess(t, call.Do(t))
	daemon.Answer = answering(&nodev1.CheckReply{Differences: []string{"2 of 9 flows are missing", "10.1.0.5/32 is not advertised"}}, nil)
	wantFailure(t, call.Do(t), CodeDifferent, "sriov_pf1_vf/c1/net1", "2 of 9 flows are missing; 10.1.0.5/32 is not advertised; hint:")
	want := &nodev1.CheckRequest{Key: key1, Parts: []nodev1.Part{nodev1.Part_PART_ROUTES}}
	wantRequests(t, daemon, want, want)
}

func TestGCForwardsValidAttachments(t *testing.T) {
	daemon := cnitest.Start(t)
	valid := []map[string]string{{"containerID": "c1", "ifname": "net1"}, {"containerID": "c2", "ifname": "net2"}}
	wantSuccess(t, bare(t, daemon, "GC", map[string]any{"cni.dev/valid-attachments": valid}).Do(t))
	wantSuccess(t, bare(t, daemon, "GC", map[string]any{"cni.dev/valid-attachments": nil}).Do(t))
	wantRequests(t, daemon,
		&nodev1.CollectGarbageRequest{Network: "sriov_pf1_vf", Valid: []*nodev1.Key{
			key1, {Network: "sriov_pf1_vf", ContainerId: "c2", Interface: "net2"}}},
		&nodev1.CollectGarbageRequest{Network: "sriov_pf1_vf"})
	wantFailure(t, bare(t, daemon, "GC", nil).Do(t), 7, "GC needs cni.dev/valid-attachments; hint:")
	wrong := []map[string]string{{"containerID": "../x", "ifname": "a"}}
	wantFailure(t, bare(t, daemon, "GC", map[string]any{"cni.dev/valid-attachments": wrong}).Do(t), 7,
		`got "../x"`)
	wantRequests(t, daemon)
}

func TestStatusChecksThePluginsNeeds(t *testing.T) {
	type rails = []*nodev1.RailStatus
	type codes = map[string]uint
	well := &nodev1.RailStatus{Rail: "rail1", SwitchReady: true, UplinkUp: true, SessionEstablished: true}
	noSwitch := &nodev1.RailStatus{
		Rail: "rail2", UplinkUp: true, SessionEstablished: true, Problems: []string{"ovs-vswitchd does not run"},
	}
	noSession := &nodev1.RailStatus{Rail: "rail2", SwitchReady: true, UplinkUp: true, Problems: []string{"session is Active"}}
	noUplink := &nodev1.RailStatus{Rail: "rail2", SwitchReady: true, SessionEstablished: true}
	for name, test := range map[string]struct {
		reply *nodev1.StatusReply
		code  codes
		want  string
	}{
		"well":    {&nodev1.StatusReply{Rails: rails{well}}, codes{}, ""},
		"no rail": {&nodev1.StatusReply{}, codes{"ovs": 50, "frr": 50, "rw": 50}, "no rail for this network"},
		"no switch": {&nodev1.StatusReply{Rails: rails{well, noSwitch}}, codes{"ovs": 50, "rw": 50},
			"rail rail2: switch down, uplink up, BGP session up (ovs-vswitchd does not run)"},
		"no session": {&nodev1.StatusReply{Rails: rails{well, noSession}}, codes{"frr": 51, "rw": 51}, "session is Active"},
		"no uplink":  {&nodev1.StatusReply{Rails: rails{noUplink, well}}, codes{"ovs": 51, "frr": 51, "rw": 51}, "uplink down"},
		"two":        {&nodev1.StatusReply{Rails: rails{noSession, noSwitch}}, codes{"ovs": 50, "frr": 51, "rw": 51}, "rail rail2"},
		"daemon": {&nodev1.StatusReply{Rails: rails{well}, Problems: []string{"disk full"}}, codes{"ovs": 50, "frr": 50, "rw": 50},
			"disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := cnitest.Start(t)
			daemon.Answer = answering(test.reply, nil)
			for short, long := range map[string]string{"ovs": "ovs-provider", "frr": "frr-provider", "rw": "railwright-cni"} {
				call := bare(t, daemon, "STATUS", nil)
				call.Program = pluginPath(t, long)
				if code := test.code[short]; code != 0 {
					wantFailure(t, call.Do(t), code, test.want)
				} else {
					wantSuccess(t, call.Do(t))
				}
			}
		})
	}
}

func TestSupportedVersions(t *testing.T) {
	daemon := cnitest.Start(t)
	version := cnitest.Call{Program: pluginPath(t, "ovs-provider"), Command: "VERSION"}.Do(t)
	wantSuccess(t, version)
	if !strings.Contains(version.Stdout, `"supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]`) {
		t.Error(version.Stdout)
	}
	call := bare(t, daemon, "DEL", map[string]any{"cniVersion": "9.0.0"})
	wantFailure(t, call.Do(t), 1, "incompatible CNI versions")
	if err := Run("bridge"); err == nil || err.Code != 4 || !strings.Contains(err.Msg, "frr-provider, frr-provider-cli, ovs-provider") {
		t.Errorf("foreign name: %v", err)
	}
}

func TestCheckOfOldVersionIsRefused(t *testing.T) {
	daemon := cnitest.Start(t)
	call := bare(t, daemon, "CHECK", map[string]any{"cniVersion": "0.3.1"})
	call.Netns = "/run/netns/p"
	wantFailure(t, call.Do(t), 1, "does not allow CHECK")
	wantRequests(t, daemon)
}
