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

// Limits of the server.
const (
	maxBytes      = 4 << 20
	maxRequests   = 512
	requestBound  = 15 * time.Second
	connectBound  = 5 * time.Second
	shutdownBound = 10 * time.Second
)

// Network is the server's interface to the reconciler.
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

// Counter counts replies.
type Counter interface {
	Request(request, code string)
}

// Server serves the plugins.
type Server struct {
	nodev1.UnimplementedNodeNetworkServer
	network Network
	counter Counter
	log     *slog.Logger
}

// New returns a Server.
func New(network Network, counter Counter, log *slog.Logger) *Server {
	return &Server{network: network, counter: counter, log: log}
}

// Serve serves the listener to processes of the allowed user IDs until ctx ends, then waits for running requests.
func (s *Server) Serve(ctx context.Context, listener net.Listener, allowed []uint32) error {
	grpcServer := grpc.NewServer(
		grpc.Creds(peerCredentials{allowed}),
		grpc.MaxRecvMsgSize(maxBytes), grpc.MaxConcurrentStreams(maxRequests), grpc.ConnectionTimeout(connectBound),
		grpc.UnaryInterceptor(s.intercept),
	)
	nodev1.RegisterNodeNetworkServer(grpcServer, s)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer := time.AfterFunc(shutdownBound, grpcServer.Stop)
		defer timer.Stop()
		grpcServer.GracefulStop()
	})
	err := grpcServer.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// intercept wraps every request: it sets the deadline, counts the reply, and confines a panic to its request.
func (s *Server) intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	name := path.Base(info.FullMethod)
	defer func() {
		if caught := recover(); caught != nil {
			s.log.Error("panic in a request", "request", name, "panic", fmt.Sprint(caught),
				"stack", string(debug.Stack()))
			reply, err = nil, errors.New("internal error: the request panicked")
		}
		if err != nil {
			s.log.Warn("request failed", "request", name, "error", err)
			err = problem(err)
		}
		s.counter.Request(name, status.Code(err).String())
	}()
	return handle(ctx, request)
}

// Add implements NodeNetwork.
func (s *Server) Add(ctx context.Context, request *nodev1.AddRequest) (*nodev1.AddReply, error) {
	want, err := attachmentOf(request)
	if err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.AddAccepted)
	attached, err := s.network.Attach(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s, %s: %w", want.Pod.Namespace, want.Pod.Name, want.Key.Interface, err)
	}
	failpoint.Reach(failpoint.AddAnswered)
	reply := &nodev1.AddReply{Rail: attached.Rail, Tenant: attached.Tenant}
	if want.Has(attachment.Flows) && attached.GatewayMAC != (attachment.MAC{}) {
		reply.GatewayMac = attached.GatewayMAC.String()
	}
	reply.UserspaceDatapath = want.Has(attachment.Flows) && attached.Userspace
	return reply, nil
}

// Delete implements NodeNetwork.
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

// Check implements NodeNetwork.
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

func keyAndParts(keyMessage *nodev1.Key, partMessages []nodev1.Part) (attachment.Key, []attachment.Part, error) {
	key, err := keyOf(keyMessage)
	if err != nil {
		return attachment.Key{}, nil, err
	}
	parts, err := partsOf(partMessages)
	return key, parts, err
}

// CollectGarbage implements NodeNetwork.
func (s *Server) CollectGarbage(
	ctx context.Context, request *nodev1.CollectGarbageRequest,
) (*nodev1.CollectGarbageReply, error) {
	if err := checkNetwork(request.GetNetwork()); err != nil {
		return nil, err
	}
	if len(request.GetValid()) > maxKeys {
		return nil, badConfig("valid attachments must be at most %d, got %d", maxKeys, len(request.GetValid()))
	}
	var valid []attachment.Key
	for _, message := range request.GetValid() {
		key, err := keyOf(message)
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

// Status implements NodeNetwork.
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

// List implements NodeNetwork.
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
