// Package cnitest serves railwrightd's API to tests of the plugins: it records what it is asked and answers as told.
package cnitest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
)

// Daemon is a server on a unix socket of the test's own, in this process.
type Daemon struct {
	nodev1.UnimplementedNodeNetworkServer
	// Folder has the socket, and is a stateDir for the plugins.
	Folder string
	// Answer to a request, in place of the reply that says that all is well. Set before the first call.
	Answer func(ctx context.Context, request proto.Message) (proto.Message, error)

	mutex    sync.Mutex
	requests []proto.Message
	server   *grpc.Server
}

// New makes one that does not serve yet: the daemon is away.
func New(t testing.TB) *Daemon {
	t.Helper()
	// Not t.TempDir: its path can be longer than that of a unix socket may be.
	folder, err := os.MkdirTemp("", "rwt-cni-")
	if err != nil {
		t.Fatal(err)
	}
	daemon := &Daemon{Folder: folder}
	t.Cleanup(func() {
		daemon.Stop()
		_ = os.RemoveAll(folder)
	})
	return daemon
}

// Start makes one that serves.
func Start(t testing.TB) *Daemon {
	t.Helper()
	daemon := New(t)
	if err := daemon.Serve(); err != nil {
		t.Fatal(err)
	}
	return daemon
}

// Socket that it serves on.
func (d *Daemon) Socket() string { return filepath.Join(d.Folder, "railwrightd.sock") }

// Tombstones that the plugins leave with stateDir set to Folder.
func (d *Daemon) Tombstones() string { return filepath.Join(d.Folder, "tombstones") }

// Serve until Stop.
func (d *Daemon) Serve() error {
	listener, err := net.Listen("unix", d.Socket())
	if err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.server = grpc.NewServer()
	nodev1.RegisterNodeNetworkServer(d.server, d)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(d.server)
	return nil
}

// Stop ends the service and all calls.
func (d *Daemon) Stop() {
	d.mutex.Lock()
	server := d.server
	d.server = nil
	d.mutex.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Asked gives all requests so far, and forgets them.
func (d *Daemon) Asked() []proto.Message {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	requests := d.requests
	d.requests = nil
	return requests
}

// Refusal is an error as the daemon makes it, with a Problem.
func Refusal(code codes.Code, message string, problem *nodev1.Problem) error {
	detailed, err := status.New(code, message).WithDetails(problem)
	if err != nil {
		panic(err)
	}
	return detailed.Err()
}

func answer[Reply proto.Message](ctx context.Context, daemon *Daemon, request proto.Message, well Reply) (Reply, error) {
	daemon.mutex.Lock()
	daemon.requests = append(daemon.requests, request)
	answer := daemon.Answer
	daemon.mutex.Unlock()
	if answer == nil {
		return well, nil
	}
	reply, err := answer(ctx, request)
	if reply == nil || err != nil {
		return well, err
	}
	return reply.(Reply), nil
}

// Add and the others are the API.
func (d *Daemon) Add(ctx context.Context, request *nodev1.AddRequest) (*nodev1.AddReply, error) {
	return answer(ctx, d, request, &nodev1.AddReply{Rail: "rail1", Tenant: "ns:" + request.GetPod().GetNamespace()})
}

// Check finds no difference.
func (d *Daemon) Check(ctx context.Context, request *nodev1.CheckRequest) (*nodev1.CheckReply, error) {
	return answer(ctx, d, request, &nodev1.CheckReply{})
}

// Delete succeeds.
func (d *Daemon) Delete(ctx context.Context, request *nodev1.DeleteRequest) (*nodev1.DeleteReply, error) {
	return answer(ctx, d, request, &nodev1.DeleteReply{})
}

// CollectGarbage finds none.
func (d *Daemon) CollectGarbage(
	ctx context.Context, request *nodev1.CollectGarbageRequest,
) (*nodev1.CollectGarbageReply, error) {
	return answer(ctx, d, request, &nodev1.CollectGarbageReply{})
}

// Status of one rail on which all is well.
func (d *Daemon) Status(ctx context.Context, request *nodev1.StatusRequest) (*nodev1.StatusReply, error) {
	return answer(ctx, d, request, &nodev1.StatusReply{Rails: []*nodev1.RailStatus{
		{Rail: "rail1", SwitchReady: true, UplinkUp: true, SessionEstablished: true},
	}})
}
