package server

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

// requestsEach is the number of requests for each RPC in the normal run.
const requestsEach = 10_000

// hostile lists texts that are special to shells, OVS, vtysh, JSON or paths, or merely invalid.
var hostile = []string{
	"", " ", "\x00", "a;reboot", "$(reboot)", "`reboot`", "a\nflush", "a|b", "a&b", "*", "..", "../../etc/passwd", "/", "a/b",
	"actions=NORMAL", "in_port=LOCAL,actions=drop", "priority=1", "br0 del-flows", "--help", "-O", "configure terminal",
	"no router bgp", "write file", "{\"a\":1}", "\"", "'", "\\", "%s%n", "${IFS}", "é", "名", "\u202e", "net1:0", "0", "-1",
	"10.0.0.1", "fd00::1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "10.0.0.1/8", "::ffff:1.2.3.4",
	"02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "/proc/self/ns/net", "/run/netns/../x", "LOCAL", "lo",
	"tenant-a", "net1", "pf0vf1", "c0ffee",
}

// validRequests returns a constructor of a valid request for each RPC.
func validRequests() map[string]func() proto.Message {
	return map[string]func() proto.Message{
		"Add":    func() proto.Message { return goodAdd() },
		"Check":  func() proto.Message { return &nodev1.CheckRequest{Key: goodAdd().Key, Parts: goodAdd().Parts} },
		"Delete": func() proto.Message { return &nodev1.DeleteRequest{Key: goodAdd().Key, Parts: goodAdd().Parts} },
		"CollectGarbage": func() proto.Message {
			return &nodev1.CollectGarbageRequest{Network: "n", Valid: []*nodev1.Key{goodAdd().Key}}
		},
		"Status": func() proto.Message { return &nodev1.StatusRequest{Network: "n"} },
		"List":   func() proto.Message { return &nodev1.ListRequest{} },
	}
}

// rawCodec sends bytes unchanged.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (rawCodec) Unmarshal(content []byte, into any) error {
	*into.(*[]byte) = append([]byte(nil), content...)
	return nil
}

func TestTenThousandHostileRequestsOfEachRPC(t *testing.T) {
	network := &recorder{}
	connection, counted := serve(t, network, []uint32{uint32(os.Geteuid())}, grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for name, empty := range validRequests() {
		random := rand.New(rand.NewPCG(7, 7))
		for range requestsEach {
			content := corruptRequest(random, empty)
			var reply []byte
			err := connection.Invoke(ctx, "/railwright.node.v1.NodeNetwork/"+name, &content, &reply)
			checkReply(t, name, content, err)
		}
	}
	for _, want := range network.attached {
		checkWanted(t, want)
	}
	for _, key := range network.detached {
		checkKey(t, key)
	}
	if counted.codes["Add OK"] == 0 || counted.codes["Add InvalidArgument"] == 0 {
		t.Errorf("want both accepted and refused requests: %v", counted.codes)
	}
	t.Log(counted.codes)
}

// corruptRequest returns the bytes of a request with hostile texts in its fields and sometimes with changed, truncated
// or repeated bytes.
func corruptRequest(random *rand.Rand, empty func() proto.Message) []byte {
	message := empty()
	for range random.IntN(3) {
		mutateField(random, message.ProtoReflect())
	}
	content, err := proto.Marshal(message)
	if err != nil || len(content) == 0 {
		// The message has no fields.
		return corruptRequest(random, func() proto.Message { return goodAdd() })
	}
	switch random.IntN(6) {
	case 0:
		content[random.IntN(len(content))] ^= byte(1 << random.IntN(8))
	case 1:
		content = content[:random.IntN(len(content))]
	case 2:
		content = append(content, content[random.IntN(len(content)):]...)
	}
	return content
}

func checkReply(t *testing.T, name string, content []byte, err error) {
	t.Helper()
	switch status.Code(err) {
	case codes.OK:
	case codes.InvalidArgument:
		if detail := detailOf(t, err); detail.GetCniCode() == 0 || detail.GetDetails() == "" {
			t.Fatalf("%s %x: %v", name, content, detail)
		}
	case codes.Internal:
		// gRPC itself returns this for bytes that are no message; our errors carry a Problem.
		if len(status.Convert(err).Details()) != 0 {
			t.Fatalf("%s %x caused an internal error: %v", name, content, err)
		}
	default:
		t.Fatalf("%s %x: %v", name, content, err)
	}
}

var (
	plainText = regexp.MustCompile(`^[A-Za-z0-9_.:@-]*$`)
	plainPath = regexp.MustCompile(`^(/[!-.0-~]+)+$`)
)

// checkWanted repeats the validation independently.
func checkWanted(t *testing.T, want attachment.Attachment) {
	t.Helper()
	checkKey(t, want.Key)
	for _, text := range []string{want.Pod.Namespace, want.Pod.Name, want.Pod.UID, want.HostInterface, want.DeviceID} {
		if !plainText.MatchString(text) || len(text) > 255 {
			t.Fatalf("accepted: %q", text)
		}
	}
	if !plainPath.MatchString(want.Netns) || want.Pod.Namespace == "" || want.HostInterface == "" || len(want.Part) == 0 {
		t.Fatalf("accepted: %+v", want)
	}
	if len(want.Addresses) == 0 || len(want.Addresses) > 2 || want.MAC[0]&1 != 0 {
		t.Fatalf("accepted: %+v", want)
	}
	for _, address := range want.Addresses {
		if !address.IsGlobalUnicast() || address.Zone() != "" || address.Is4In6() {
			t.Fatalf("accepted: %s", address)
		}
	}
}

func checkKey(t *testing.T, key attachment.Key) {
	t.Helper()
	interfaceName := regexp.MustCompile(`^[!-.0-9;-~]{1,15}$`)
	if !plainText.MatchString(key.Network+key.ContainerID) || key.Network == "" || key.ContainerID == "" ||
		!interfaceName.MatchString(key.Interface) {
		t.Fatalf("accepted: %q", key)
	}
}

func fuzz[Request proto.Message](f *testing.F, empty func() Request, call func(*Server, Request) error) {
	for range 20 {
		content, err := proto.Marshal(empty())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		request := empty()
		proto.Reset(request)
		if proto.Unmarshal(content, request) != nil {
			return
		}
		network := &recorder{}
		err := call(New(network, &tally{}, slog.New(slog.DiscardHandler)), request)
		var bad *badRequest
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("%v should be a badRequest", err)
		}
		for _, want := range network.attached {
			checkWanted(t, want)
		}
		for _, key := range network.detached {
			checkKey(t, key)
		}
	})
}

func FuzzAdd(f *testing.F) {
	fuzz(f, goodAdd, func(server *Server, request *nodev1.AddRequest) error {
		_, err := server.Add(context.Background(), request)
		return err
	})
}

func FuzzDelete(f *testing.F) {
	fuzz(f, func() *nodev1.DeleteRequest {
		return &nodev1.DeleteRequest{Key: goodAdd().Key, Parts: goodAdd().Parts}
	}, func(server *Server, request *nodev1.DeleteRequest) error {
		_, err := server.Delete(context.Background(), request)
		return err
	})
}

func FuzzCheck(f *testing.F) {
	fuzz(f, func() *nodev1.CheckRequest {
		return &nodev1.CheckRequest{Key: goodAdd().Key, Parts: goodAdd().Parts}
	}, func(server *Server, request *nodev1.CheckRequest) error {
		_, err := server.Check(context.Background(), request)
		return err
	})
}

func FuzzCollectGarbage(f *testing.F) {
	fuzz(f, func() *nodev1.CollectGarbageRequest {
		return &nodev1.CollectGarbageRequest{Network: "n", Valid: []*nodev1.Key{goodAdd().Key}}
	}, func(server *Server, request *nodev1.CollectGarbageRequest) error {
		_, err := server.CollectGarbage(context.Background(), request)
		return err
	})
}

func FuzzStatus(f *testing.F) {
	fuzz(f, func() *nodev1.StatusRequest { return &nodev1.StatusRequest{Network: "n"} }, func(server *Server, request *nodev1.StatusRequest) error {
		_, err := server.Status(context.Background(), request)
		return err
	})
}

func FuzzList(f *testing.F) {
	fuzz(f, func() *nodev1.ListRequest { return &nodev1.ListRequest{} }, func(server *Server, request *nodev1.ListRequest) error {
		_, err := server.List(context.Background(), request)
		return err
	})
}
