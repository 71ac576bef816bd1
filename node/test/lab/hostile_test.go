package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab/railnode"
)

// hostileTexts returns texts that would create the file trace, change FRR or OVS, or break out of JSON or a path if any
// program interpreted them.
func hostileTexts(trace string) []string {
	return []string{
		"a;touch " + trace, "$(touch " + trace + ")", "`touch " + trace + "`", "a|touch " + trace, "a\ntouch " + trace + "\n",
		"'; touch " + trace + "; '", "\nexit\nrouter bgp 65001\nno neighbor LEAVES peer-group\n", "a\nno router bgp 65001",
		"a,actions=NORMAL", "priority=65535 actions=NORMAL", "a\npriority=65535,actions=NORMAL",
		`a"},"mac":"02:66:66:66:66:66","x":{"y":"`, `{"K8S_POD_NAMESPACE":"red-1"}`, "../../../../../.." + trace, "--help", "%s%n%x",
		"a=b;K8S_POD_NAMESPACE=alone", "\u202ered-1", strings.Repeat("a", 70000),
	}
}

// attackers puts hostile text into each field that a runtime passes on, for the whole chain and for our plugin alone.
func attackers(t *testing.T, fabric *fabric) {
	node := fabric.nodes[0]
	trace := filepath.Join(node.Folder, "executed")
	before := node.settled(t)
	t.Run("the whole chain", func(t *testing.T) {
		for _, text := range hostileTexts(trace) {
			pod := node.newPod(t, "red-1")
			pod.namespace, pod.name = text, "name"
			pod.mustBeRefused(t, 1)
		}
		pod := node.newPod(t, "red-1")
		pod.name = hostileTexts(trace)[1]
		pod.mustBeRefused(t, 0)
	})
	t.Run("our plugin alone", func(t *testing.T) {
		call, undo := node.readyForPlugin(t)
		defer undo()
		honest := node.afterADD(t, call)
		if honest == nil {
			t.Fatal("unmodified ADD is not listed")
		}
		accepted := map[string]int{}
		for _, text := range hostileTexts(trace) {
			for field, made := range hostileCalls(call, text) {
				found := node.afterADD(t, made)
				if found != nil {
					accepted[field]++
				}
				if want := expectedAttachment(honest, field, text); !proto.Equal(found, want) {
					t.Errorf("ADD with %s %.40q became %v, want %v", field, text, found, want)
				}
			}
		}
		t.Logf("accepted: %v", accepted)
		if accepted[notLookedAt] != len(hostileTexts(trace)) || accepted[wordForWord] == 0 {
			t.Error("no text that must be accepted was tried")
		}
	})
	if _, err := os.Stat(trace); err == nil {
		t.Error("a hostile text was executed")
	}
	if after := node.settled(t); after != before {
		t.Errorf("FRR's or Open vSwitch's configuration changed to:\n%s\nfrom:\n%s", after, before)
	}
}

// Fields in which an ADD may contain hostile text: those read by other plugins only, and those without a grammar.
const (
	notLookedAt = "an annotation's cni-args"
	wordForWord = "pod's uid"
	podName     = "pod's name"
)

var (
	anyUID  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	anyName = regexp.MustCompile(`^[a-z0-9]{1,63}$`)
)

// expectedAttachment returns the attachment that an ADD with this text in a field must create, or nil if it must be refused.
func expectedAttachment(honest *nodev1.Attached, field, text string) *nodev1.Attached {
	made := proto.CloneOf(honest)
	word, _, _ := strings.Cut(text, ";") // a semicolon separates CNI_ARGS
	switch {
	case field == notLookedAt:
	case field == wordForWord && anyUID.MatchString(word):
		made.Pod.Uid = word
	case field == podName && anyName.MatchString(word):
		made.Pod.Name = word
	default:
		return nil
	}
	return made
}

// mustBeRefused checks that a plugin of the chain refuses the pod's ADD for its content, and that the daemon lists no
// attachment.
func (p *pod) mustBeRefused(t *testing.T, rail int) {
	t.Helper()
	_, err := p.add(t, rail)
	var cniError *types.Error
	if !errors.As(err, &cniError) || cniError.Code == types.ErrTryAgainLater || !strings.Contains(cniError.Error(), "ARGS") && !strings.Contains(cniError.Error(), "K8S_POD_NAME") {
		t.Errorf("ADD of %.40q/%.40q: %v", p.namespace, p.name, err)
	}
	if found := p.node.attachmentOf(t, p.id); found != nil {
		t.Errorf("ADD of %.40q/%.40q became %v", p.namespace, p.name, found)
	}
	// A DEL with the same name would be refused as well.
	p.namespace, p.name = "red-1", "name"
	if err := p.detach(t, rail); err != nil {
		t.Error(err)
	}
}

// afterADD runs our plugin alone and returns the attachment that ADD created, or nil if ADD was refused. It deletes the
// attachment again.
func (nd *node) afterADD(t *testing.T, call cnitest.Call) *nodev1.Attached {
	t.Helper()
	outcome := call.Do(t)
	found := nd.attachmentOf(t, call.ContainerID)
	if (outcome.Err == nil) != (found != nil) {
		t.Errorf("ADD ended with %v, and %v is listed", outcome.Err, found)
	}
	if outcome.Err != nil && outcome.Err.Code == types.ErrTryAgainLater {
		t.Errorf("ADD must fail because of its content, got: %v", outcome.Err)
	}
	if found == nil {
		return nil
	}
	call.Command = "DEL"
	if outcome := call.Do(t); outcome.Err != nil {
		t.Errorf("DEL after a successful ADD: %v", outcome.Err)
	}
	if left := nd.attachmentOf(t, call.ContainerID); left != nil {
		t.Errorf("left after DEL: %v", left)
	}
	return found
}

// attachmentOf returns a container's attachment from the daemon's list without the fields that change by themselves, or
// nil if there is none.
func (nd *node) attachmentOf(t *testing.T, container string) *nodev1.Attached {
	t.Helper()
	ctx, cancel := boundedContext(t)
	defer cancel()
	reply, err := nd.Client.List(ctx, &nodev1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, attached := range reply.GetAttached() {
		if attached.GetKey().GetContainerId() == container {
			attached.FlowsWanted, attached.FlowsInstalled, attached.Advertised, attached.Dropped, attached.Counted = 0, 0, false, nil, false
			return attached
		}
	}
	return nil
}

// settled returns the state that must not change: FRR's configuration, the bridges' settings, and for each rail the
// number of NORMAL actions, which bypass the checks.
func (nd *node) settled(t *testing.T) string {
	t.Helper()
	nd.fabric.mustSettle(t)
	state := nd.FRR.Show(t, "show running-config") + nd.OVS.Vsctl(t, "--columns=name,fail_mode,controller,other_config", "list", "bridge")
	for rail := range rails {
		state += fmt.Sprintln(strings.Count(strings.ToUpper(nd.OVS.Ofctl(t, bridgeOf(rail), "dump-flows")), "NORMAL"))
	}
	return state
}

// readyForPlugin creates an interface with ovs-cni and returns a call of our plugin for it.
func (nd *node) readyForPlugin(t *testing.T) (cnitest.Call, func()) {
	t.Helper()
	pod := nd.newPod(t, "red-1")
	list, err := libcni.ConfListFromBytes(nd.conflist(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := boundedContext(t)
	defer cancel()
	cniResult, err := nd.runtime.cni.AddNetworkList(ctx, list, pod.conf(1))
	if err != nil {
		t.Fatal(err)
	}
	result, err := types100.NewResultFromResult(cniResult)
	if err != nil {
		t.Fatal(err)
	}
	previous, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	call := cnitest.Call{
		Program: filepath.Join(railnode.Plugins(t), "railwright-cni"), Command: "ADD", ContainerID: pod.id, Interface: faceOf(1),
		Netns: pod.Path(), Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=red-1;K8S_POD_NAME=p;K8S_POD_UID=u",
		Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"railwright-cni","socket":%q,"stateDir":%q,"prevResult":%s}`,
			railName(1), nd.Path("run/d.sock"), nd.Path("state"), previous),
	}
	return call, func() {
		ctx, cancel := boundedContext(t)
		defer cancel()
		if err := nd.runtime.cni.DelNetworkList(ctx, list, pod.conf(1)); err != nil {
			t.Error(err)
		}
	}
}

// hostileCalls returns calls that have the text in one field each. Texts that are too long for the environment are used
// in the configuration only.
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
	change(podName, func(call *cnitest.Call) { call.Args = strings.Replace(call.Args, "NAME=p", "NAME="+text, 1) })
	change(wordForWord, func(call *cnitest.Call) { call.Args = strings.Replace(call.Args, "UID=u", "UID="+text, 1) })
	change("arguments", func(call *cnitest.Call) { call.Args = text })
	change("configuration", func(call *cnitest.Call) { call.Config = text })
	for _, field := range []string{"name", "deviceID", "maxRate", "routes", "mtu", "cniVersion"} {
		config(field, func(config, _ map[string]any) { config[field] = text })
	}
	config(notLookedAt, func(config, _ map[string]any) {
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
