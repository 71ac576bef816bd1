package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab/railnode"
)

// hostileTexts would leave a file, change FRR or OVS, or break out of JSON or a path, if anybody took them for more than
// data.
func hostileTexts(trace string) []string {
	return []string{
		"a;touch " + trace, "$(touch " + trace + ")", "`touch " + trace + "`", "a|touch " + trace, "a\ntouch " + trace + "\n",
		"'; touch " + trace + "; '", "\nexit\nrouter bgp 65001\nno neighbor LEAVES peer-group\n", "a\nno router bgp 65001",
		"a,actions=NORMAL", "priority=65535 actions=NORMAL", "a\npriority=65535,actions=NORMAL",
		`a"},"mac":"02:66:66:66:66:66","x":{"y":"`, `{"K8S_POD_NAMESPACE":"red-1"}`, "../../../../../.." + trace, "--help", "%s%n%x",
		"a=b;K8S_POD_NAMESPACE=alone", "\u202ered-1", strings.Repeat("a", 70000),
	}
}

// attackers send hostile text wherever a runtime carries some, through the whole chain and to our plugin alone.
func attackers(t *testing.T, fabric *fabric) {
	node := fabric.nodes[0]
	trace := filepath.Join(node.Folder, "executed")
	before := node.settled(t)
	refused, carried, carriers := 0, 0, map[string]int{}
	count := func(err error, key *nodev1.Key, text string) {
		if err != nil {
			refused++
			return
		}
		carried++
		node.mustCarry(t, key, text)
	}
	t.Run("the whole chain", func(t *testing.T) {
		for _, text := range hostileTexts(trace) {
			one := node.newPod(t, "red-1")
			one.namespace, one.name = text, "name"
			count(one.attach(t, 1), one.key(1), text)
			_ = one.detach(t, 1)
		}
		one := node.newPod(t, "red-1")
		one.name = hostileTexts(trace)[1]
		count(one.attach(t, 0), one.key(0), one.name)
		_ = one.detach(t, 0)
	})
	t.Run("our plugin alone", func(t *testing.T) {
		call, undo := node.readyForPlugin(t)
		defer undo()
		for _, text := range hostileTexts(trace) {
			for field, made := range hostileCalls(call, text) {
				outcome := made.Do(t)
				if outcome.Err != nil {
					refused++
				} else {
					carried++
					carriers[field]++
					node.mustCarry(t, &nodev1.Key{Network: railName(1), ContainerId: made.ContainerID, Interface: made.Interface}, text)
				}
				made.Command = "DEL"
				if outcome := made.Do(t); outcome.Err != nil && outcome.Err.Code == 0 {
					t.Errorf("DEL with %s %.40q: %v", field, text, outcome.Err)
				}
			}
		}
	})
	t.Logf("%d refused, %d carried as data or not looked at: %v", refused, carried, carriers)
	if refused == 0 {
		t.Error("nothing was refused")
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("something was executed")
	}
	if after := node.settled(t); after != before {
		t.Errorf("FRR or Open vSwitch are not as they were:\n%s\nbefore:\n%s", after, before)
	}
}

func (p *pod) key(rail int) *nodev1.Key {
	return &nodev1.Key{Network: railName(rail), ContainerId: p.id, Interface: faceOf(rail)}
}

// settled gives what nobody may have changed: FRR's configuration, the bridges' settings, actions that bypass the guard.
func (nd *node) settled(t *testing.T) string {
	t.Helper()
	nd.fabric.mustSettle(t)
	told := nd.FRR.Show(t, "show running-config") + nd.OVS.Vsctl(t, "--columns=name,fail_mode,controller,other_config", "list", "bridge")
	for rail := range rails {
		told += fmt.Sprintln(strings.Count(strings.ToUpper(nd.OVS.Ofctl(t, bridgeOf(rail), "dump-flows")), "NORMAL"))
	}
	return told
}

// mustCarry: what was accepted is in the daemon's list word for word, or was not looked at.
func (nd *node) mustCarry(t *testing.T, key *nodev1.Key, text string) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	reply, err := nd.Client.List(ctx, &nodev1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range reply.GetAttached() {
		if one.GetKey().GetContainerId() != key.GetContainerId() {
			continue
		}
		for _, field := range []string{one.GetPod().GetNamespace(), one.GetPod().GetName()} {
			if field == text && strings.ContainsAny(field, " ;$`'\"\\/|\n") {
				t.Errorf("a name that Kubernetes would not have given was taken: %.60q", field)
			}
		}
	}
}

// readyForPlugin: an interface that ovs made, and a call of our plugin for it.
func (nd *node) readyForPlugin(t *testing.T) (cnitest.Call, func()) {
	t.Helper()
	one := nd.newPod(t, "red-1")
	list, err := libcni.ConfListFromBytes(nd.conflist(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := bounded(t)
	defer cancel()
	told, err := nd.runtime.cni.AddNetworkList(ctx, list, one.conf(1))
	if err != nil {
		t.Fatal(err)
	}
	result, err := types100.NewResultFromResult(told)
	if err != nil {
		t.Fatal(err)
	}
	previous, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	call := cnitest.Call{
		Program: filepath.Join(railnode.Plugins(t), "railwright-cni"), Command: "ADD", ContainerID: one.id, Interface: faceOf(1),
		Netns: one.Path(), Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=red-1;K8S_POD_NAME=p;K8S_POD_UID=u",
		Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"railwright-cni","socket":%q,"stateDir":%q,"prevResult":%s}`,
			railName(1), nd.Path("run/d.sock"), nd.Path("state"), previous),
	}
	return call, func() {
		ctx, cancel := bounded(t)
		defer cancel()
		if err := nd.runtime.cni.DelNetworkList(ctx, list, one.conf(1)); err != nil {
			t.Error(err)
		}
	}
}

// hostileCalls have the text in one place each. Longer than the environment takes is left to the configuration.
func hostileCalls(call cnitest.Call, text string) map[string]cnitest.Call {
	made := map[string]cnitest.Call{}
	change := func(name string, do func(*cnitest.Call)) {
		changed := call
		do(&changed)
		made[name] = changed
	}
	config := func(name string, do func(config, previous map[string]any)) {
		change(name, func(call *cnitest.Call) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(call.Config), &fields); err != nil {
				panic(err)
			}
			do(fields, fields["prevResult"].(map[string]any))
			content, err := json.Marshal(fields)
			if err != nil {
				panic(err)
			}
			call.Config = string(content)
		})
	}
	change("container", func(call *cnitest.Call) { call.ContainerID = text })
	change("interface", func(call *cnitest.Call) { call.Interface = text })
	change("netns", func(call *cnitest.Call) { call.Netns = text })
	change("pod's name", func(call *cnitest.Call) { call.Args = strings.Replace(call.Args, "NAME=p", "NAME="+text, 1) })
	change("pod's uid", func(call *cnitest.Call) { call.Args = strings.Replace(call.Args, "UID=u", "UID="+text, 1) })
	change("arguments", func(call *cnitest.Call) { call.Args = text })
	change("configuration", func(call *cnitest.Call) { call.Config = text })
	for _, field := range []string{"name", "deviceID", "maxRate", "routes", "mtu", "cniVersion"} {
		config(field, func(config, _ map[string]any) { config[field] = text })
	}
	config("an annotation's cni-args", func(config, _ map[string]any) {
		config["args"] = map[string]any{"cni": map[string]any{"ips": []string{text}, text: text}}
		config["runtimeConfig"] = map[string]any{"deviceID": text, "mac": text, "io.kubernetes.cri.pod-annotations": map[string]any{text: text}}
	})
	for _, field := range []string{"name", "mac", "sandbox"} {
		config("previous interface's "+field, func(_, previous map[string]any) {
			for _, face := range previous["interfaces"].([]any) {
				face.(map[string]any)[field] = text
			}
		})
	}
	for _, field := range []string{"address", "gateway"} {
		config("previous "+field, func(_, previous map[string]any) {
			for _, address := range previous["ips"].([]any) {
				address.(map[string]any)[field] = text
			}
		})
	}
	return made
}
