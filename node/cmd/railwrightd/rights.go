package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"railwright/node/internal/announce"
	"railwright/node/internal/config"
)

// rights lists the rights that this process lacks, those that are unknown, and those that are unknown because a socket
// does not exist, which the client of that socket reports too. Each is a sentence.
type rights struct{ missing, unknown, away []string }

// rightsFor checks the rights that the configuration needs. deploy/daemonset.yaml gives a container exactly these.
func rightsFor(read config.Config) rights {
	var found rights
	found.network(read.Rails[0].Table)
	for _, socket := range socketsOf(read) {
		found.socket(socket)
	}
	return found
}

// lackingRights returns the missing and unknown rights of a running daemon.
func lackingRights(read config.Config) []string {
	found := rightsFor(read)
	return slices.Concat(found.missing, found.unknown)
}

func socketsOf(read config.Config) []string {
	sockets := []string{read.OpenVSwitch.Database}
	for _, rail := range read.Rails {
		sockets = append(sockets, filepath.Join(read.OpenVSwitch.Management, rail.Bridge+".mgmt"))
	}
	return append(sockets, read.FRR.BGPSocket)
}

// network asks the kernel to delete a route that never exists. The kernel checks the capability first, in the user
// namespace that matters, which this process's capability list does not show.
func (r *rights) network(table int) {
	never := &netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4bcast, Mask: net.CIDRMask(32, 32)}, Table: table, Protocol: announce.Protocol,
		Type: unix.RTN_BLACKHOLE,
	}
	switch err := netlink.RouteDel(never); {
	case err == nil, errors.Is(err, unix.ESRCH):
	case errors.Is(err, unix.EPERM):
		r.missing = append(r.missing, "capability NET_ADMIN is missing, so routes cannot be written to the rails' "+
			"tables and leaves cannot be resolved; add it to the process or its container")
	default:
		r.unknown = append(r.unknown, fmt.Sprintf("cannot check capability NET_ADMIN: %v", err))
	}
}

// socket checks access to the socket of another daemon, which often runs as another user.
func (r *rights) socket(path string) {
	err := unix.Access(path, unix.R_OK|unix.W_OK)
	switch {
	case err == nil:
	case errors.Is(err, unix.EACCES):
		r.missing = append(r.missing, fmt.Sprintf("capability DAC_OVERRIDE is missing: %s is not accessible "+
			"to user %d%s; add it to the process or its container", path, os.Geteuid(), ownerOf(path)))
	case errors.Is(err, unix.ENOENT):
		r.away = append(r.away, fmt.Sprintf("cannot check access to %s: it does not exist; check that its "+
			"daemon runs", path))
	default:
		r.unknown = append(r.unknown, fmt.Sprintf("cannot check access to %s: %v", path, err))
	}
}

// ownerOf describes the owner of a file, or returns "" if it is unknown.
func ownerOf(path string) string {
	found, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	status, known := found.Sys().(*syscall.Stat_t)
	if !known {
		return ""
	}
	return fmt.Sprintf(" (mode %s, user %d, group %d)", found.Mode().Perm(), status.Uid, status.Gid)
}
