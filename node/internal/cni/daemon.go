package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "railwright/node/api/v1"
)

// dialPause separates attempts to reach a restarting daemon.
const dialPause = 10 * time.Millisecond

// daemon is a connection to railwrightd for a single command.
type daemon struct {
	nodev1.NodeNetworkClient
	connection *grpc.ClientConn
	settings   Settings
}

// patience selects whether connect waits for a daemon that is down.
type patience bool

const (
	// once does not wait, because the alternative is as good.
	once patience = false
	// patient waits for ConnectTimeout: it saves the runtime a new sandbox if the daemon comes back.
	patient patience = true
)

// connect connects to the daemon. If patient, it waits up to ConnectTimeout for a listener; then it waits up to
// ConnectTimeout for the gRPC greeting.
func connect(settings Settings, patience patience) (*daemon, *types.Error) {
	deadline := time.Now().Add(settings.ConnectTimeout)
	socket, err := dial(settings, deadline)
	for err != nil && bool(patience) && isAway(err) && time.Until(deadline) > dialPause {
		time.Sleep(dialPause)
		again, late := dial(settings, deadline)
		if errors.Is(late, context.DeadlineExceeded) {
			break // the pause exceeded the deadline; the earlier error is more specific
		}
		socket, err = again, late
	}
	if err != nil {
		return nil, failure(types.ErrTryAgainLater, checkDaemon, "railwrightd does not answer: %v", err)
	}
	connection, err := newClientConn(socket, settings)
	if err != nil {
		_ = socket.Close()
		return nil, failure(types.ErrInternal, checkDaemon, "create gRPC client for %s: %v", settings.Socket, err)
	}
	if !awaitGreeting(connection, settings.ConnectTimeout) {
		_ = connection.Close()
		return nil, failure(types.ErrTryAgainLater, checkDaemon,
			"railwrightd on %s accepts connections but sent no gRPC greeting within %s",
			settings.Socket, settings.ConnectTimeout)
	}
	return &daemon{nodev1.NewNodeNetworkClient(connection), connection, settings}, nil
}

// newClientConn runs gRPC over this socket only. A call that loses it fails.
func newClientConn(socket net.Conn, settings Settings) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///railwrightd",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // only root can open the socket; checked in dial
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("connection lost")
			}
			return socket, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: settings.ConnectTimeout,
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond},
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	)
}

// awaitGreeting waits for the server's greeting, because the kernel accepts connections for a hanging daemon.
func awaitGreeting(connection *grpc.ClientConn, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	connection.Connect()
	for {
		switch state := connection.GetState(); state {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure, connectivity.Shutdown:
			return false
		default:
			if !connection.WaitForStateChange(ctx, state) {
				return false
			}
		}
	}
}

func (d *daemon) close() { _ = d.connection.Close() }

// timeout returns the context of a call.
func (d *daemon) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.settings.Timeout)
}

// dial connects to the socket. It refuses a server that runs neither as root nor as this user, because the server would
// learn every pod's addresses.
func dial(settings Settings, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	connection, err := dialer.Dial("unix", settings.Socket)
	if err != nil {
		return nil, err
	}
	owner, err := serverOf(connection.(*net.UnixConn))
	if err == nil && owner != 0 && owner != uint32(os.Geteuid()) {
		err = fmt.Errorf("%s must be served by root, got user %d", settings.Socket, owner)
	}
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	return connection, nil
}

func serverOf(connection *net.UnixConn) (user uint32, err error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *syscall.Ucred
	var callErr error
	err = raw.Control(func(descriptor uintptr) {
		credentials, callErr = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, callErr); err != nil {
		return 0, fmt.Errorf("read credentials of the server: %w", err)
	}
	return credentials.Uid, nil
}

// isAway reports whether nobody listens on the socket now, which can change in a moment.
func isAway(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}
