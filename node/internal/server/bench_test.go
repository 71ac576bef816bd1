package server

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/reconcile"
)

// recorder is a Network that records its calls and returns prepared results.
type recorder struct {
	mutex    sync.Mutex
	attached []attachment.Attachment
	detached []attachment.Key
	fails    error
	panics   bool
	slow     time.Duration
}

func (r *recorder) Attach(ctx context.Context, want attachment.Attachment) (reconcile.Attached, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.panics {
		panic("as the test says")
	}
	if r.slow > 0 {
		select {
		case <-time.After(r.slow):
		case <-ctx.Done():
			return reconcile.Attached{}, ctx.Err()
		}
	}
	r.attached = append(r.attached, want)
	return reconcile.Attached{Rail: "rail0", Tenant: "ns:a", GatewayMAC: attachment.MAC{2, 1}}, r.fails
}

func (r *recorder) Detach(_ context.Context, key attachment.Key, _ []attachment.Part) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.detached = append(r.detached, key)
	return r.fails
}

func (r *recorder) Check(_ context.Context, key attachment.Key, _ []attachment.Part) ([]string, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.detached = append(r.detached, key)
	return []string{"a difference"}, r.fails
}

func (r *recorder) CollectGarbage(_ context.Context, network string, valid []attachment.Key) ([]attachment.Key, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.detached = append(append(r.detached, valid...), attachment.Key{Network: network, ContainerID: "c", Interface: "i"})
	return valid, r.fails
}

func (r *recorder) Rails(context.Context, string) []reconcile.RailState {
	return []reconcile.RailState{{Name: "rail0", SwitchReady: true, Problems: []string{"uplink p0 has no carrier"}}}
}

func (r *recorder) List(context.Context) []reconcile.Observed {
	return []reconcile.Observed{{
		Attachment: attachment.Attachment{
			Key: attachment.Key{Network: "n", ContainerID: "c", Interface: "i"}, Part: []attachment.Part{attachment.Routes},
			Addresses: []netip.Addr{netip.MustParseAddr("fd00::5")}, MAC: attachment.MAC{2, 0, 0, 0, 1, 16},
		},
		FlowsWanted: 12, FlowsInstalled: 11, Advertised: true,
	}}
}

func (r *recorder) Problems() []string { return []string{"the disk is full"} }

func (r *recorder) Notes() []string { return []string{"tenant b is ignored"} }

// tally counts replies.
type tally struct {
	mutex sync.Mutex
	codes map[string]int
}

func (tl *tally) Request(request, code string) {
	tl.mutex.Lock()
	defer tl.mutex.Unlock()
	if tl.codes == nil {
		tl.codes = map[string]int{}
	}
	tl.codes[request+" "+code]++
}

// serve serves the recorder to the allowed users and returns a connection to it.
func serve(t testing.TB, network Network, allowed []uint32, options ...grpc.DialOption) (*grpc.ClientConn, *tally) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own", "d.sock")
	listener, err := Listen(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	counted := &tally{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(network, counted, slog.New(slog.DiscardHandler)).Serve(ctx, listener, allowed) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	connection, err := grpc.NewClient("unix:"+path, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection, counted
}

// detailOf returns an error's Problem.
func detailOf(t testing.TB, err error) *nodev1.Problem {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if found, ok := detail.(*nodev1.Problem); ok {
			return found
		}
	}
	t.Fatalf("%v has no Problem", err)
	return nil
}

// goodAdd returns a valid request.
func goodAdd() *nodev1.AddRequest {
	return &nodev1.AddRequest{
		Key:   &nodev1.Key{Network: "mlnx-sriov-pf1", ContainerId: "c0ffee", Interface: "net1"},
		Parts: []nodev1.Part{nodev1.Part_PART_FLOWS, nodev1.Part_PART_ROUTES},
		Pod:   &nodev1.Pod{Namespace: "tenant-a", Name: "trainer-0", Uid: "0f9d-11"},
		Netns: "/run/netns/cni-1", HostInterface: "pf0vf1", Mac: "02:00:00:00:01:10",
		Addresses: []string{"fd00::5", "10.1.0.5"}, Gateways: []string{"fe80::1", "10.1.0.1"},
		DeviceId: "0000:01:10.0", MaxRateBitsPerS: 10e9,
	}
}
