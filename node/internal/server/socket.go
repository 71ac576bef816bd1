package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// Listen on a unix socket (0600) in a folder (0700) that only we and root can enter. The caller holds the lock of the
// state folder, so a socket that is there is of a daemon that has ended.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := closeFolder(filepath.Dir(path), filepath.Base(path)); err != nil {
		return nil, err
	}
	if status, err := os.Lstat(path); err == nil {
		if status.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s is there and is no socket; move it away", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("the old socket cannot be removed: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("the plugins' socket cannot be made: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("the plugins' socket cannot be closed to others: %w", err), listener.Close())
	}
	return listener, nil
}

// closeFolder makes the socket's folder, or closes one that was made for it (kubelet makes it open to all). A folder that
// others use is left as it is and refused.
func closeFolder(folder, name string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("the socket's folder cannot be made: %w", err)
	}
	status, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("the socket's folder cannot be looked at: %w", err)
	}
	if !status.IsDir() {
		return fmt.Errorf("%s is no folder; give the socket another path", folder)
	}
	owner := status.Sys().(*syscall.Stat_t).Uid
	if status.Mode().Perm()&0o077 == 0 && int(owner) == os.Geteuid() {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the socket's folder cannot be looked at: %w", err)
	}
	foreign := slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		return entry.Name() != name && !strings.HasPrefix(entry.Name(), ".")
	})
	if foreign || int(owner) != os.Geteuid() {
		return fmt.Errorf("the socket's folder %s (%s, user %d) is open to others and not ours alone; "+
			"give the socket a folder of its own", folder, status.Mode().Perm(), owner)
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		return fmt.Errorf("the socket's folder cannot be closed to others: %w", err)
	}
	return nil
}

// peerCredentials lets in the processes of some users, as the kernel tells who they are.
type peerCredentials struct{ allowed []uint32 }

// peer is what is known of who asks.
type peer struct {
	credentials.CommonAuthInfo
	uid uint32
	pid int32
}

// AuthType is of credentials.AuthInfo.
func (peer) AuthType() string { return "unix-peer" }

// ServerHandshake is of credentials.TransportCredentials.
func (p peerCredentials) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	caller, err := peerOf(connection)
	if err == nil && !slices.Contains(p.allowed, caller.uid) {
		err = fmt.Errorf("process %d of user %d may not use this socket; allowed_uids lists who may", caller.pid, caller.uid)
	}
	if err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return connection, caller, nil
}

func peerOf(connection net.Conn) (peer, error) {
	unix, ok := connection.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("not a unix socket")
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var ucred *syscall.Ucred
	var failure error
	if err := raw.Control(func(descriptor uintptr) {
		ucred, failure = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if failure != nil {
		return peer{}, fmt.Errorf("the kernel does not say who asks: %w", failure)
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return peer{level, ucred.Uid, ucred.Pid}, nil
}

// ClientHandshake is of credentials.TransportCredentials; these are a server's alone.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for a server")
}

// Info is of credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone is of credentials.TransportCredentials.
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName is of credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }
