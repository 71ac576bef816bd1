package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/reconcile"
	"railwright/node/testlab"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestValidRequestsReachTheNetwork(t *testing.T) {
	network := &recorder{}
	connection, counted := serve(t, network, []uint32{uint32(os.Geteuid())})
	client := nodev1.NewNodeNetworkClient(connection)
	reply, err := client.Add(testContext(t), goodAdd())
	if err != nil || reply.GetRail() != "rail0" ||
		reply.GetGatewayMac() != "02:01:00:00:00:00" {
		t.Fatal(reply, err)
	}
	got := network.attached[0]
	if fmt.Sprint(got.Addresses, got.Gateways) != "[10.1.0.5 fd00::5] [10.1.0.1 fe80::1]" || got.MAC.String() != "02:00:00:00:01:10" ||
		got.MaxRate != 10e9 || got.Pod.UID != "0f9d-11" || len(got.Part) != 2 || got.Rail != "" || got.Number != 0 {
		t.Errorf("%+v", got)
	}
	key := goodAdd().GetKey()
	both := goodAdd().GetParts()
	check, err := client.Check(testContext(t), &nodev1.CheckRequest{Key: key, Parts: both})
	if err != nil || check.GetDifferences()[0] != "a difference" {
		t.Error(check, err)
	}
	if _, err := client.Delete(testContext(t), &nodev1.DeleteRequest{Key: key, Parts: both}); err != nil || len(network.detached) != 2 {
		t.Error(err, network.detached)
	}
	collected, err := client.CollectGarbage(testContext(t), &nodev1.CollectGarbageRequest{Network: "n", Valid: []*nodev1.Key{key}})
	if err != nil || collected.GetDeleted()[0].GetContainerId() != "c0ffee" {
		t.Error(collected, err)
	}
	status, err := client.Status(testContext(t), &nodev1.StatusRequest{})
	if err != nil || !status.GetRails()[0].GetSwitchReady() || status.GetProblems()[0] != "the disk is full" || status.GetNotes()[0] != "tenant b is ignored" {
		t.Error(status, err)
	}
	listed, err := client.List(testContext(t), &nodev1.ListRequest{})
	if err != nil || listed.GetAttached()[0].GetAddresses()[0] != "fd00::5" || listed.GetAttached()[0].GetFlowsInstalled() != 11 {
		t.Error(listed, err)
	}
	if counted.codes["Add OK"] != 1 || counted.codes["List OK"] != 1 {
		t.Error(counted.codes)
	}
}

func TestInvalidRequestsAreRefusedWithTheirValue(t *testing.T) {
	network := &recorder{}
	connection, _ := serve(t, network, []uint32{uint32(os.Geteuid())})
	client := nodev1.NewNodeNetworkClient(connection)
	long := strings.Repeat("x", 300)
	for _, wrong := range []struct {
		want string
		code uint32
		make func(*nodev1.AddRequest)
	}{
		{"network", 4, func(add *nodev1.AddRequest) { add.Key.Network = "a;b" }},
		{"network", 4, func(add *nodev1.AddRequest) { add.Key = nil }},
		{"container id", 4, func(add *nodev1.AddRequest) { add.Key.ContainerId = "../../etc" }},
		{"container id", 4, func(add *nodev1.AddRequest) { add.Key.ContainerId = long }},
		{"interface name", 4, func(add *nodev1.AddRequest) { add.Key.Interface = "net1\nflush" }},
		{"parts must not be empty", 7, func(add *nodev1.AddRequest) { add.Parts = nil }},
		{"got 9", 7, func(add *nodev1.AddRequest) { add.Parts = []nodev1.Part{9} }},
		{"twice", 7, func(add *nodev1.AddRequest) { add.Parts = []nodev1.Part{1, 1} }},
		{`"tenant_A"`, 4, func(add *nodev1.AddRequest) { add.Pod.Namespace = "tenant_A" }},
		{"K8S_POD_NAMESPACE", 4, func(add *nodev1.AddRequest) { add.Pod = nil }},
		{`got "-t"`, 4, func(add *nodev1.AddRequest) { add.Pod.Namespace = "-t" }},
		{`got "T"`, 4, func(add *nodev1.AddRequest) { add.Pod.Namespace = "T" }},
		{"no more than 63", 4, func(add *nodev1.AddRequest) { add.Pod.Namespace = strings.Repeat("a", 64) }},
		{`K8S_POD_NAME must be a pod's name, got "a..b": a lowercase RFC 1123 subdomain`, 4, func(add *nodev1.AddRequest) { add.Pod.Name = "a..b" }},
		{`"$(reboot)"`, 4, func(add *nodev1.AddRequest) { add.Pod.Name = "$(reboot)" }},
		{"K8S_POD_NAME", 4, func(add *nodev1.AddRequest) { add.Pod.Name = long }},
		{`"a b"`, 4, func(add *nodev1.AddRequest) { add.Pod.Uid = "a b" }},
		{"run/netns", 4, func(add *nodev1.AddRequest) { add.Netns = "run/netns/x" }},
		{"/run/../etc", 4, func(add *nodev1.AddRequest) { add.Netns = "/run/../etc" }},
		{"CNI_NETNS", 4, func(add *nodev1.AddRequest) { add.Netns = "" }},
		{"CNI_NETNS", 4, func(add *nodev1.AddRequest) { add.Netns = "/" + strings.Repeat("x", attachment.LongestPath) }},
		{"actions=drop", 7, func(add *nodev1.AddRequest) { add.HostInterface = "a actions=drop" }},
		{"host interface", 7, func(add *nodev1.AddRequest) { add.HostInterface = "sixteen-letters-" }},
		{"01:00:5e:00:00:01", 7, func(add *nodev1.AddRequest) { add.Mac = "01:00:5e:00:00:01" }},
		{"mac", 7, func(add *nodev1.AddRequest) { add.Mac = "" }},
		{"must have an address", 7, func(add *nodev1.AddRequest) { add.Addresses = nil }},
		{"10.1.0.5/24", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"10.1.0.5/24"} }},
		{"got 3", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"10.1.0.5", "fd00::5", "10.1.0.6"} }},
		{"of one family", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"10.1.0.5", "10.1.0.6"} }},
		{"link-local", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"fe80::5"} }},
		{"link-local", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"169.254.1.1"} }},
		{"::ffff:10.1.0.5", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"::ffff:10.1.0.5"} }},
		{"fe80::1%eth0", 7, func(add *nodev1.AddRequest) { add.Gateways = []string{"fe80::1%eth0"} }},
		{"reserved", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"255.255.255.255"} }},
		{"224.0.0.5", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"224.0.0.5"} }},
		{"127.0.0.1", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"127.0.0.1"} }},
		{"has no address", 7, func(add *nodev1.AddRequest) { add.Addresses = []string{"fd00::5"} }},
		{"and the gateway", 7, func(add *nodev1.AddRequest) { add.Gateways = []string{"10.1.0.5"} }},
		{"PCI address", 7, func(add *nodev1.AddRequest) { add.DeviceId = "0000:01:10.0; rm" }},
		{"bit/s", 7, func(add *nodev1.AddRequest) { add.MaxRateBitsPerS = 1 << 63 }},
		{"bit/s", 7, func(add *nodev1.AddRequest) { add.MaxRateBitsPerS = 4_295_000_000_000 }},
	} {
		request := goodAdd()
		wrong.make(request)
		_, err := client.Add(testContext(t), request)
		detail := detailOf(t, err)
		if status.Code(err) != codes.InvalidArgument || detail.GetCniCode() != wrong.code || detail.GetHint() == "" ||
			!strings.Contains(detail.GetDetails(), wrong.want) {
			t.Errorf("%v: code %d, %q; want %d and %q", status.Code(err), detail.GetCniCode(), detail.GetDetails(), wrong.code, wrong.want)
		}
	}
	if len(network.attached) != 0 {
		t.Errorf("accepted: %v", network.attached)
	}
}

func TestEveryKindHasACodeAndAMessage(t *testing.T) {
	seen := map[uint32]reconcile.Kind{}
	for kind := reconcile.Internal; kind <= reconcile.Busy; kind++ {
		failed, known := codesOf[kind]
		if !known || messageOf[kind] == "" {
			t.Errorf("kind %d has no code or no message", kind)
		}
		if other, twice := seen[failed.cni]; twice && failed.cni != cniTryAgain {
			t.Errorf("kinds %d and %d share the code %d", kind, other, failed.cni)
		}
		seen[failed.cni] = kind
	}
	network := &recorder{fails: &reconcile.Failure{Kind: reconcile.Taken, Err: errors.New("10.1.0.5 belongs to pod b"), Hint: "DEL it"}}
	connection, counted := serve(t, network, []uint32{uint32(os.Geteuid())})
	client := nodev1.NewNodeNetworkClient(connection)
	_, err := client.Add(testContext(t), goodAdd())
	if detail := detailOf(t, err); detail.GetCniCode() != 102 || detail.GetHint() != "DEL it" || status.Code(err) != codes.AlreadyExists {
		t.Error(err, detail)
	}
	if counted.codes["Add AlreadyExists"] != 1 {
		t.Error(counted.codes)
	}
	network.fails = errors.New("surprise")
	_, err = client.Add(testContext(t), goodAdd())
	if detail := detailOf(t, err); detail.GetCniCode() != cniInternal {
		t.Error(err, detail)
	}
}

func TestPanicFailsOnlyItsRequest(t *testing.T) {
	network := &recorder{panics: true}
	connection, _ := serve(t, network, []uint32{uint32(os.Geteuid())})
	client := nodev1.NewNodeNetworkClient(connection)
	_, err := client.Add(testContext(t), goodAdd())
	if detail := detailOf(t, err); detail.GetCniCode() != cniInternal || strings.Contains(detail.GetDetails(), "as the test says") {
		t.Error(err, detail)
	}
	network.mutex.Lock()
	network.panics = false
	network.mutex.Unlock()
	if _, err := client.Add(testContext(t), goodAdd()); err != nil {
		t.Error(err)
	}
}

func TestOnlyAllowedUsersAreServed(t *testing.T) {
	network := &recorder{}
	connection, _ := serve(t, network, []uint32{uint32(os.Geteuid()) + 12345})
	_, err := nodev1.NewNodeNetworkClient(connection).List(testContext(t), &nodev1.ListRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("another user got a reply: %v", err)
	}
}

func TestLongMessagesAreRefused(t *testing.T) {
	connection, _ := serve(t, &recorder{}, []uint32{uint32(os.Geteuid())})
	client := nodev1.NewNodeNetworkClient(connection)
	request := goodAdd()
	request.Netns = strings.Repeat("n", maxBytes)
	if _, err := client.Add(testContext(t), request); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	many := &nodev1.CollectGarbageRequest{Network: "n", Valid: make([]*nodev1.Key, maxKeys+1)}
	if _, err := client.CollectGarbage(testContext(t), many); detailOf(t, err).GetCniCode() != cniBadConfig {
		t.Error(err)
	}
}

func TestSocketIsPrivate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "d.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	listener, err := Listen(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if status, _ := os.Stat(folder); status.Mode().Perm() != 0o700 {
		t.Errorf("folder has mode %s", status.Mode())
	}
	listener, err = Listen(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := os.Stat(path); status.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %s", status.Mode())
	}
	_ = listener.Close()

	shared := t.TempDir()
	if err := errors.Join(os.Chmod(shared, 0o777), os.WriteFile(filepath.Join(shared, "theirs"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(context.Background(), filepath.Join(shared, "d.sock")); err == nil || !strings.Contains(err.Error(), shared) {
		t.Errorf("shared folder was accepted: %v", err)
	}
	if status, _ := os.Stat(shared); status.Mode().Perm() != 0o777 {
		t.Error("shared folder was changed")
	}
	plain := filepath.Join(folder, "plain.sock")
	if err := os.WriteFile(plain, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(context.Background(), plain); err == nil {
		t.Error("plain file was replaced")
	}
}
