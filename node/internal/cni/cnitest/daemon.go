// Package cnitest serves railwrightd's API to tests of the plugins. It records requests and returns prepared replies.
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

// Daemon is a server on the test's own unix socket, in this process.
type Daemon struct {
	nodev1.UnimplementedNodeNetworkServer
	// Folder holds the socket, and is a stateDir for the plugins.
	Folder string
	// Answer replaces the default reply to a request. It must be set before the first call.
	Answer func(ctx context.Context, request proto.Message) (proto.Message, error)

	mutex    sync.Mutex
	requests []proto.Message
	server   *grpc.Server
}

// New returns a Daemon that does not serve yet, like a daemon that is down.
func New(t testing.TB) *Daemon {
	t.Helper()
	// t.TempDir can be longer than a unix socket's path may be.
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

// Start returns a Daemon that serves.
func Start(t testing.TB) *Daemon {
	t.Helper()
	daemon := New(t)
	if err := daemon.Serve(); err != nil {
		t.Fatal(err)
	}
	return daemon
}

// Socket returns the path of the socket.
func (d *Daemon) Socket() string { return filepath.Join(d.Folder, "railwrightd.sock") }

// Tombstones returns the folder of tombstones of plugins whose stateDir is Folder.
func (d *Daemon) Tombstones() string { return filepath.Join(d.Folder, "tombstones") }

// Serve starts to serve until Stop.
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

// Stop ends the server and all calls.
func (d *Daemon) Stop() {
	d.mutex.Lock()
	server := d.server
	d.server = nil
	d.mutex.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Requests returns the requests since the last call.
func (d *Daemon) Requests() []proto.Message {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	requests := d.requests
	d.requests = nil
	return requests
}

// Refusal returns an error with a Problem, as the daemon returns it.
func Refusal(code codes.Code, message string, problem *nodev1.Problem) error {
	detailed, err := status.New(code, message).WithDetails(problem)
	if err != nil {
		panic(err)
	}
	return detailed.Err()
}

func respond[Reply proto.Message](ctx context.Context, daemon *Daemon, request proto.Message, well Reply) (Reply, error) {
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

// Add implements NodeNetwork. Its default reply succeeds.
func (d *Daemon) Add(ctx context.Context, request *nodev1.AddRequest) (*nodev1.AddReply, error) {
	return respond(ctx, d, request, &nodev1.AddReply{Rail: "rail1", Tenant: "ns:" + request.GetPod().GetNamespace()})
}

// Check implements NodeNetwork. Its default reply has no differences.
func (d *Daemon) Check(ctx context.Context, request *nodev1.CheckRequest) (*nodev1.CheckReply, error) {
	return respond(ctx, d, request, &nodev1.CheckReply{})
}

// Delete implements NodeNetwork. Its default reply succeeds.
func (d *Daemon) Delete(ctx context.Context, request *nodev1.DeleteRequest) (*nodev1.DeleteReply, error) {
	return respond(ctx, d, request, &nodev1.DeleteReply{})
}

// CollectGarbage implements NodeNetwork. Its default reply deletes nothing.
func (d *Daemon) CollectGarbage(
	ctx context.Context, request *nodev1.CollectGarbageRequest,
) (*nodev1.CollectGarbageReply, error) {
	return respond(ctx, d, request, &nodev1.CollectGarbageReply{})
}

// Status implements NodeNetwork. Its default reply is a healthy rail.
func (d *Daemon) Status(ctx context.Context, request *nodev1.StatusRequest) (*nodev1.StatusReply, error) {
	return respond(ctx, d, request, &nodev1.StatusReply{Rails: []*nodev1.RailStatus{
		{Rail: "rail1", SwitchReady: true, UplinkUp: true, SessionEstablished: true},
	}})
}
