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

// rights that this process lacks, those that cannot be told, and of those the ones whose socket is not there, which who
// connects to it tells too. One sentence each.
type rights struct{ missing, unknown, away []string }

// rightsFor what the configuration asks: deploy/daemonset.yaml gives a container these and no others.
func rightsFor(read config.Config) rights {
	var found rights
	found.network(read.Rails[0].Table)
	for _, socket := range socketsOf(read) {
		found.socket(socket)
	}
	return found
}

// lacking while the daemon runs.
func lacking(read config.Config) []string {
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

// network: the kernel is asked to delete a route that is never there. It looks at the capability first, and in the user
// namespace that counts, which a list of this process's capabilities does not tell.
func (r *rights) network(table int) {
	never := &netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4bcast, Mask: net.CIDRMask(32, 32)}, Table: table, Protocol: announce.Protocol,
		Type: unix.RTN_BLACKHOLE,
	}
	switch err := netlink.RouteDel(never); {
	case err == nil, errors.Is(err, unix.ESRCH):
	case errors.Is(err, unix.EPERM):
		r.missing = append(r.missing, "the capability NET_ADMIN is missing: no route can be written to the rails' "+
			"tables, and no leaf be resolved; give it to the process or its container")
	default:
		r.unknown = append(r.unknown, fmt.Sprintf("whether the capability NET_ADMIN is there cannot be told: %v", err))
	}
}

// socket of another daemon, often another user's.
func (r *rights) socket(path string) {
	err := unix.Access(path, unix.R_OK|unix.W_OK)
	switch {
	case err == nil:
	case errors.Is(err, unix.EACCES):
		r.missing = append(r.missing, fmt.Sprintf("the capability DAC_OVERRIDE is missing: %s may not be connected to "+
			"by user %d%s; give it to the process or its container", path, os.Geteuid(), ownerOf(path)))
	case errors.Is(err, unix.ENOENT):
		r.away = append(r.away, fmt.Sprintf("whether %s may be connected to cannot be told: it is not there; does its "+
			"daemon run?", path))
	default:
		r.unknown = append(r.unknown, fmt.Sprintf("whether %s may be connected to cannot be told: %v", path, err))
	}
}

// ownerOf a file, where that can be seen.
func ownerOf(path string) string {
	found, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	status, known := found.Sys().(*syscall.Stat_t)
	if !known {
		return ""
	}
	return fmt.Sprintf(" (it is %s of user %d, group %d)", found.Mode().Perm(), status.Uid, status.Gid)
}
