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

// dialPause between two looks for a daemon that is being restarted.
const dialPause = 10 * time.Millisecond

// daemon is one connection with railwrightd, for one verb.
type daemon struct {
	nodev1.NodeNetworkClient
	connection *grpc.ClientConn
	settings   Settings
}

// patience is how connect takes a daemon that is away.
type patience bool

const (
	// once: what follows is no worse for it.
	once patience = false
	// patient: a daemon that is back within ConnectTimeout saves the runtime a new sandbox.
	patient patience = true
)

// connect to the daemon: ConnectTimeout for somebody to listen, and once more for his first words.
func connect(settings Settings, patience patience) (*daemon, *types.Error) {
	deadline := time.Now().Add(settings.ConnectTimeout)
	socket, err := dial(settings, deadline)
	for err != nil && bool(patience) && isAway(err) && time.Until(deadline) > dialPause {
		time.Sleep(dialPause)
		again, late := dial(settings, deadline)
		if errors.Is(late, context.DeadlineExceeded) {
			break // the pause took longer than asked for; what was wrong before tells more
		}
		socket, err = again, late
	}
	if err != nil {
		return nil, failure(types.ErrTryAgainLater, lookAtDaemon, "railwrightd does not answer: %v", err)
	}
	connection, err := speak(socket, settings)
	if err != nil {
		_ = socket.Close()
		return nil, failure(types.ErrInternal, lookAtDaemon, "railwrightd on %s: %v", settings.Socket, err)
	}
	if !greeted(connection, settings.ConnectTimeout) {
		_ = connection.Close()
		return nil, failure(types.ErrTryAgainLater, lookAtDaemon,
			"what serves %s takes the call but says nothing within %s, or speaks no gRPC",
			settings.Socket, settings.ConnectTimeout)
	}
	return &daemon{nodev1.NewNodeNetworkClient(connection), connection, settings}, nil
}

// speak gRPC on this one socket: a call that loses it fails.
func speak(socket net.Conn, settings Settings) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///railwrightd",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only root opens; checked in dial
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection was lost")
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

// greeted waits for the server's first words: the kernel takes connections for a daemon that hangs.
func greeted(connection *grpc.ClientConn, timeout time.Duration) bool {
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

// timeout of one call.
func (d *daemon) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.settings.Timeout)
}

// dial the socket, and refuse a server that is neither root nor who we are: it would be told every pod's addresses.
func dial(settings Settings, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	connection, err := dialer.Dial("unix", settings.Socket)
	if err != nil {
		return nil, err
	}
	owner, err := serverOf(connection.(*net.UnixConn))
	if err == nil && owner != 0 && owner != uint32(os.Geteuid()) {
		err = fmt.Errorf("%s is served by user %d, not by root", settings.Socket, owner)
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
		return 0, fmt.Errorf("who serves it: %w", err)
	}
	return credentials.Uid, nil
}

// isAway: nobody listens there now, but somebody may in a moment.
func isAway(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}
