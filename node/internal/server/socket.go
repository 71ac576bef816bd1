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

// Listen creates a unix socket (0600) in a folder (0700) that only this user and root can enter. The caller holds the
// lock of the state folder, so an existing socket belongs to a daemon that has ended.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := makeFolderPrivate(filepath.Dir(path), filepath.Base(path)); err != nil {
		return nil, err
	}
	if status, err := os.Lstat(path); err == nil {
		if status.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s must be a socket or not exist; move it away", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("create socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("change mode of socket: %w", err), listener.Close())
	}
	return listener, nil
}

// makeFolderPrivate creates the socket's folder, or makes an existing one private (kubelet creates it open to all). It
// refuses a folder that others use and leaves it unchanged.
func makeFolderPrivate(folder, name string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create folder of the socket: %w", err)
	}
	status, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("read folder of the socket: %w", err)
	}
	if !status.IsDir() {
		return fmt.Errorf("%s must be a folder; use another path for the socket", folder)
	}
	owner := status.Sys().(*syscall.Stat_t).Uid
	if status.Mode().Perm()&0o077 == 0 && int(owner) == os.Geteuid() {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read folder of the socket: %w", err)
	}
	foreign := slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		return entry.Name() != name && !strings.HasPrefix(entry.Name(), ".")
	})
	if foreign || int(owner) != os.Geteuid() {
		return fmt.Errorf("folder of the socket must be private, got %s with mode %s and owner %d; "+
			"use a separate folder for the socket", folder, status.Mode().Perm(), owner)
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		return fmt.Errorf("change mode of the socket's folder: %w", err)
	}
	return nil
}

// peerCredentials admits processes of the allowed users, whom the kernel identifies.
type peerCredentials struct{ allowed []uint32 }

// peer identifies the calling process.
type peer struct {
	credentials.CommonAuthInfo
	uid uint32
	pid int32
}

// AuthType implements credentials.AuthInfo.
func (peer) AuthType() string { return "unix-peer" }

// ServerHandshake implements credentials.TransportCredentials.
func (p peerCredentials) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	caller, err := peerOf(connection)
	if err == nil && !slices.Contains(p.allowed, caller.uid) {
		err = fmt.Errorf("process %d of user %d must not use this socket; add the user to allowed_uids", caller.pid, caller.uid)
	}
	if err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return connection, caller, nil
}

func peerOf(connection net.Conn) (peer, error) {
	unix, ok := connection.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("connection must be a unix socket")
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
		return peer{}, fmt.Errorf("read credentials of the caller: %w", failure)
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return peer{level, ucred.Uid, ucred.Pid}, nil
}

// ClientHandshake implements credentials.TransportCredentials. It always fails, because these credentials are for
// servers.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for a server")
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone implements credentials.TransportCredentials.
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }
