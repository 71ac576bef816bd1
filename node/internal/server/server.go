package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/plan"
	"railwright/node/internal/reconcile"
)

// Bounds of the server.
const (
	mostBytes     = 4 << 20
	mostRequests  = 512
	requestBound  = 15 * time.Second
	connectBound  = 5 * time.Second
	shutdownBound = 10 * time.Second
)

// Network is what the server asks of the reconciler.
type Network interface {
	Attach(ctx context.Context, want attachment.Attachment) (reconcile.Attached, error)
	Detach(ctx context.Context, key attachment.Key, parts []attachment.Part) error
	Check(ctx context.Context, key attachment.Key, parts []attachment.Part) ([]string, error)
	CollectGarbage(ctx context.Context, network string, valid []attachment.Key) ([]attachment.Key, error)
	Rails(ctx context.Context, network string) []reconcile.RailState
	List(ctx context.Context) []reconcile.Observed
	Problems() []string
	Notes() []string
}

// Counter counts what was answered.
type Counter interface {
	Request(request, code string)
}

// Server of the plugins.
type Server struct {
	nodev1.UnimplementedNodeNetworkServer
	network Network
	counter Counter
	log     *slog.Logger
}

// New makes one.
func New(network Network, counter Counter, log *slog.Logger) *Server {
	return &Server{network: network, counter: counter, log: log}
}

// Serve the listener to processes of the user ids given, until ctx ends; requests that run then are finished.
func (s *Server) Serve(ctx context.Context, listener net.Listener, allowed []uint32) error {
	door := grpc.NewServer(
		grpc.Creds(peerCredentials{allowed}),
		grpc.MaxRecvMsgSize(mostBytes), grpc.MaxConcurrentStreams(mostRequests), grpc.ConnectionTimeout(connectBound),
		grpc.UnaryInterceptor(s.around),
	)
	nodev1.RegisterNodeNetworkServer(door, s)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer := time.AfterFunc(shutdownBound, door.Stop)
		defer timer.Stop()
		door.GracefulStop()
	})
	err := door.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// around every request: its bound, its count, and a panic of ours costs that request alone.
func (s *Server) around(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	name := path.Base(info.FullMethod)
	defer func() {
		if caught := recover(); caught != nil {
			s.log.Error("a request made us panic", "request", name, "panic", fmt.Sprint(caught),
				"stack", string(debug.Stack()))
			reply, err = nil, errors.New("a fault of ours; nothing more is known about the request")
		}
		if err != nil {
			s.log.Warn("refused", "request", name, "error", err)
			err = problem(err)
		}
		s.counter.Request(name, status.Code(err).String())
	}()
	return handle(ctx, request)
}

// Add is of the API.
func (s *Server) Add(ctx context.Context, request *nodev1.AddRequest) (*nodev1.AddReply, error) {
	want, err := wantedOf(request)
	if err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.AddAccepted)
	attached, err := s.network.Attach(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s, %s: %w", want.Pod.Namespace, want.Pod.Name, want.Key.Interface, err)
	}
	failpoint.Reach(failpoint.AddAnswered)
	reply := &nodev1.AddReply{Rail: attached.Rail, Tenant: attached.Tenant, UnconfirmedNodes: attached.Unconfirmed}
	if want.Has(attachment.Flows) && attached.GatewayMAC != (attachment.MAC{}) {
		reply.GatewayMac = attached.GatewayMAC.String()
	}
	reply.UserspaceDatapath = want.Has(attachment.Flows) && attached.Userspace
	return reply, nil
}

// Delete is of the API.
func (s *Server) Delete(ctx context.Context, request *nodev1.DeleteRequest) (*nodev1.DeleteReply, error) {
	key, parts, err := keyAndParts(request.GetKey(), request.GetParts())
	if err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.DeleteAccepted)
	if err := s.network.Detach(ctx, key, parts); err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.DeleteAnswered)
	return &nodev1.DeleteReply{}, nil
}

// Check is of the API.
func (s *Server) Check(ctx context.Context, request *nodev1.CheckRequest) (*nodev1.CheckReply, error) {
	key, parts, err := keyAndParts(request.GetKey(), request.GetParts())
	if err != nil {
		return nil, err
	}
	differences, err := s.network.Check(ctx, key, parts)
	if err != nil {
		return nil, err
	}
	return &nodev1.CheckReply{Differences: differences}, nil
}

func keyAndParts(givenKey *nodev1.Key, givenParts []nodev1.Part) (attachment.Key, []attachment.Part, error) {
	key, err := keyOf(givenKey)
	if err != nil {
		return attachment.Key{}, nil, err
	}
	parts, err := partsOf(givenParts)
	return key, parts, err
}

// CollectGarbage is of the API.
func (s *Server) CollectGarbage(
	ctx context.Context, request *nodev1.CollectGarbageRequest,
) (*nodev1.CollectGarbageReply, error) {
	if err := checkNetwork(request.GetNetwork()); err != nil {
		return nil, err
	}
	if len(request.GetValid()) > mostKeys {
		return nil, badConfig("%d valid attachments are listed, more than %d", len(request.GetValid()), mostKeys)
	}
	var valid []attachment.Key
	for _, given := range request.GetValid() {
		key, err := keyOf(given)
		if err != nil {
			return nil, err
		}
		valid = append(valid, key)
	}
	deleted, err := s.network.CollectGarbage(ctx, request.GetNetwork(), valid)
	if err != nil {
		return nil, err
	}
	reply := &nodev1.CollectGarbageReply{}
	for _, key := range deleted {
		reply.Deleted = append(reply.Deleted, keyTo(key))
	}
	return reply, nil
}

// Status is of the API.
func (s *Server) Status(ctx context.Context, request *nodev1.StatusRequest) (*nodev1.StatusReply, error) {
	if request.GetNetwork() != "" {
		if err := checkNetwork(request.GetNetwork()); err != nil {
			return nil, err
		}
	}
	reply := &nodev1.StatusReply{Problems: s.network.Problems(), Notes: s.network.Notes()}
	for _, rail := range s.network.Rails(ctx, request.GetNetwork()) {
		railStatus := &nodev1.RailStatus{
			Rail: rail.Name, SwitchReady: rail.SwitchReady, UplinkUp: rail.UplinkUp,
			SessionEstablished: rail.SessionEstablished, Problems: rail.Problems, Dropped: droppedTo(rail.Dropped),
		}
		for _, prefix := range rail.Prefixes {
			railStatus.Prefixes = append(railStatus.Prefixes, prefix.String())
		}
		reply.Rails = append(reply.Rails, railStatus)
	}
	return reply, nil
}

// List is of the API.
func (s *Server) List(ctx context.Context, _ *nodev1.ListRequest) (*nodev1.ListReply, error) {
	reply := &nodev1.ListReply{}
	for _, seen := range s.network.List(ctx) {
		reply.Attached = append(reply.Attached, attachedTo(seen))
	}
	return reply, nil
}

func checkNetwork(name string) error {
	if err := (attachment.Key{Network: name, ContainerID: "any", Interface: "any"}).Check(); err != nil {
		return badName("%v", err)
	}
	return nil
}

func keyTo(key attachment.Key) *nodev1.Key {
	return &nodev1.Key{Network: key.Network, ContainerId: key.ContainerID, Interface: key.Interface}
}

func attachedTo(seen reconcile.Observed) *nodev1.Attached {
	attached := &nodev1.Attached{
		Key: keyTo(seen.Key), Rail: seen.Rail, Tenant: seen.Tenant, HostInterface: seen.HostInterface, Mac: seen.MAC.String(),
		Pod:      &nodev1.Pod{Namespace: seen.Pod.Namespace, Name: seen.Pod.Name, Uid: seen.Pod.UID},
		DeviceId: seen.DeviceID, FlowsWanted: uint32(seen.FlowsWanted), FlowsInstalled: uint32(seen.FlowsInstalled),
		Advertised: seen.Advertised, Netns: seen.Netns, OpenTenants: seen.OpenTenants, Dropped: droppedTo(seen.Dropped),
		Counted: seen.Counted,
	}
	if seen.GatewayMAC != (attachment.MAC{}) {
		attached.GatewayMac = seen.GatewayMAC.String()
	}
	for _, gateway := range seen.Gateways {
		attached.Gateways = append(attached.Gateways, gateway.String())
	}
	names := map[attachment.Part]nodev1.Part{
		attachment.Flows: nodev1.Part_PART_FLOWS, attachment.Routes: nodev1.Part_PART_ROUTES,
	}
	for _, part := range seen.Part {
		attached.Parts = append(attached.Parts, names[part])
	}
	for _, address := range seen.Addresses {
		attached.Addresses = append(attached.Addresses, address.String())
	}
	return attached
}

func droppedTo(dropped map[plan.Reason]uint64) map[string]uint64 {
	counts := map[string]uint64{}
	for reason, packets := range dropped {
		counts[reason.String()] = packets
	}
	return counts
}
