package chain

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/cni/cnitest"
	"railwright/node/internal/tombstone"
)

// runtime is the CNI part of a container runtime.
type runtime struct {
	*libcni.CNIConfig
	list *libcni.NetworkConfigList
	pod  *libcni.RuntimeConf
}

func (l *lab) runtime(t *testing.T, pod int, conflist []byte) *runtime {
	t.Helper()
	list, err := libcni.ConfListFromBytes(conflist)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plugins said:\n%s", stderr.String())
		}
	})
	program := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: &stderr}}
	return &runtime{
		libcni.NewCNIConfigWithCacheDir([]string{l.Path("bin")}, l.Path("cache"), program),
		list,
		&libcni.RuntimeConf{
			ContainerID: "c1", NetNS: l.pods[pod].Path(), IfName: "net1",
			Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "tenant1"}, {"K8S_POD_NAME", "pod1"},
				{"K8S_POD_UID", "u-1"}, {"K8S_POD_UID", "u-1"}},
		},
	}
}

func (r *runtime) key() *nodev1.Key {
	return &nodev1.Key{Network: network, ContainerId: r.pod.ContainerID, Interface: r.pod.IfName}
}

// deletes returns the DEL requests of the plugins, in reverse order of the chain.
func (r *runtime) deletes() []proto.Message {
	return []proto.Message{
		&nodev1.DeleteRequest{Key: r.key(), Parts: routes}, &nodev1.DeleteRequest{Key: r.key(), Parts: flows},
	}
}

func wantError(t *testing.T, err error, code uint, want string) {
	t.Helper()
	var cniError *types.Error
	if !errors.As(err, &cniError) || cniError.Code != code || !strings.Contains(cniError.Error(), want) {
		t.Errorf("%v\nwant code %d and %q", err, code, want)
	}
}

func TestEveryVerbOfARuntimeReachesThePlugins(t *testing.T) {
	lab := newLab(t, 1)
	lab.daemon.Answer = gatewayReply
	runtime := lab.runtime(t, 0, lab.conflist(t, "1.1.0", sourceChain()...))
	result, err := runtime.AddNetworkList(t.Context(), runtime.list, runtime.pod)
	if err != nil {
		t.Fatal(err)
	}
	request := lab.expectedRequest(t, lab.pods[0], runtime.key())
	wantAsked(t, lab, withParts(request, flows), withParts(request, routes))
	var printed strings.Builder
	if err := result.PrintTo(&printed); err != nil {
		t.Fatal(err)
	}
	wantRecorded(t, "result-1.1.0.json", printed.String(), request)
	if _, ok := result.(*types100.Result); !ok {
		t.Errorf("result has type %T", result)
	}

	if err := runtime.CheckNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		t.Error(err)
	}
	wantAsked(t, lab,
		&nodev1.CheckRequest{Key: runtime.key(), Parts: flows}, &nodev1.CheckRequest{Key: runtime.key(), Parts: routes})
	if err := runtime.GetStatusNetworkList(t.Context(), runtime.list); err != nil {
		t.Error(err)
	}
	wantAsked(t, lab, &nodev1.StatusRequest{Network: network}, &nodev1.StatusRequest{Network: network})

	valid := &nodev1.CollectGarbageRequest{Network: network, Valid: []*nodev1.Key{runtime.key()}}
	all := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c1", IfName: "net1"}}}
	if err := runtime.GCNetworkList(t.Context(), runtime.list, all); err != nil {
		t.Error(err)
	}
	wantAsked(t, lab, valid, valid)
	// With an empty list the runtime calls DEL for each cached attachment, then GC. The daemon decides about the rest.
	if err := runtime.GCNetworkList(t.Context(), runtime.list, &libcni.GCArgs{}); err != nil {
		t.Error(err)
	}
	none := &nodev1.CollectGarbageRequest{Network: network}
	wantAsked(t, lab, append(runtime.deletes(), none, none)...)
}

func TestADaemonThatIsAwayStopsAddAndNotDel(t *testing.T) {
	lab := newLab(t, 2)
	lab.daemon.Answer = gatewayReply
	conflist := lab.conflist(t, "1.1.0", sourceChain()...)
	there := lab.runtime(t, 0, conflist)
	if _, err := there.AddNetworkList(t.Context(), there.list, there.pod); err != nil {
		t.Fatal(err)
	}
	lab.daemon.Stop()

	late := lab.runtime(t, 1, conflist)
	late.pod.ContainerID = "c2"
	_, err := late.AddNetworkList(t.Context(), late.list, late.pod)
	wantError(t, err, 11, "railwrightd does not answer")
	if err := late.DelNetworkList(t.Context(), late.list, late.pod); err != nil {
		t.Error(err)
	}

	// The pod is gone with its namespace and the runtime's cache, so DEL has few fields.
	if err := os.RemoveAll(lab.Path("cache")); err != nil {
		t.Fatal(err)
	}
	lab.pods[0].IP(t, "link", "delete", "net1")
	there.pod.NetNS = ""
	if err := there.DelNetworkList(t.Context(), there.list, there.pod); err != nil {
		t.Error(err)
	}
	wantError(t, there.GetStatusNetworkList(t.Context(), there.list), 50, "railwrightd does not answer")

	paths, err := tombstone.List(lab.tombstones())
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, path := range paths {
		stone, err := tombstone.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		kept[stone.Key.ContainerID+" "+string(stone.Parts[0])] = true
	}
	for _, container := range []string{"c1", "c2"} {
		for _, part := range []attachment.Part{attachment.Flows, attachment.Routes} {
			if !kept[container+" "+string(part)] {
				t.Errorf("no tombstone of %s %s among %v", container, part, kept)
			}
		}
	}
}

func TestARefusedAddLeavesNothingOnceTheRuntimeHasCalledDel(t *testing.T) {
	lab := newLab(t, 1)
	refused := false
	lab.daemon.Answer = func(_ context.Context, request proto.Message) (proto.Message, error) {
		if add, ok := request.(*nodev1.AddRequest); ok && add.GetParts()[0] == routes[0] {
			refused = true
			return nil, cnitest.Refusal(codes.Unavailable, "rail1 announces 200 prefixes already",
				&nodev1.Problem{CniCode: 11, Hint: "raise maxPrefixes below the leaf's maximum-prefix"})
		}
		return nil, nil
	}
	runtime := lab.runtime(t, 0, lab.conflist(t, "0.4.0", sourceChain()...))
	_, err := runtime.AddNetworkList(t.Context(), runtime.list, runtime.pod)
	wantError(t, err, 11, "rail1 announces 200 prefixes already; hint: raise maxPrefixes")
	if !refused {
		t.Error("another plugin failed")
	}
	lab.daemon.Requests()
	if err := runtime.DelNetworkList(t.Context(), runtime.list, runtime.pod); err != nil {
		t.Error(err)
	}
	wantAsked(t, lab, runtime.deletes()...)
	if ports := lab.ports(t); len(ports) != 0 {
		t.Errorf("ports %v", ports)
	}
}

func TestAChainInTheWrongOrderIsToldSo(t *testing.T) {
	lab := newLab(t, 1)
	runtime := lab.runtime(t, 0, lab.conflist(t, "0.4.0", map[string]any{"type": "railwright-cni"}))
	runtime.list.Plugins = runtime.list.Plugins[1:]
	_, err := runtime.AddNetworkList(t.Context(), runtime.list, runtime.pod)
	wantError(t, err, 7, "prevResult is required")
	wantAsked(t, lab)
}
