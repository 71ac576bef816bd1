// Package config reads railwrightd's one YAML file. What is wrong is told with the field, the value seen and the next
// step, all of it at once; a field that is not known is refused, with the nearest that is.
package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"railwright/node/internal/plan"
)

const mostBytes = 1 << 20

// Config is what the file says, checked, with the defaults filled in.
type Config struct {
	// Node is this machine's name among the others.
	Node         string
	StateFolder  string
	Socket       string
	AllowedUIDs  []uint32
	Metrics      netip.AddrPort
	NetnsFolders []string
	Rails        []Rail
	// RetiredRails are no more in the file, but hold attachments, or did.
	RetiredRails []Rail
	OpenVSwitch  OpenVSwitch
	FRR          FRR
	Tenants      Tenants
	// AdvertiseTimeout bounds how long an ADD waits until the leaf has been sent its routes.
	AdvertiseTimeout time.Duration
	// ForwardTimeout bounds how long an ADD waits until the leaf has sent a packet for the pod here; 0: it does not wait.
	ForwardTimeout time.Duration
	// ConfirmTimeout bounds how long an ADD waits for the other nodes to let the new address in.
	ConfirmTimeout time.Duration
}

// Rail is one NIC with its bridge and its leaf.
type Rail struct {
	plan.Rail
	// Leaf's address; not valid for BGP unnumbered.
	Leaf netip.Addr
	// IPv4 and IPv6 are the families that pods may have addresses of.
	IPv4, IPv6 bool
	// Prefixes that pods' addresses are in: what FRR's filter lets out.
	Prefixes []netip.Prefix
	// MaxPrefixes that are announced at most; below the leaf's maximum-prefix, which would end the whole session.
	MaxPrefixes int
	// Retired: out of the configuration. It takes no new attachment, and is forgotten once it has none.
	Retired bool
}

// EveryRail that may have something programmed: those configured, and then those retired.
func (c Config) EveryRail() []Rail { return slices.Concat(c.Rails, c.RetiredRails) }

// Carries says whether pods may have the address on this rail.
func (r Rail) Carries(address netip.Addr) bool {
	return address.Is4() && r.IPv4 || address.Is6() && r.IPv6
}

// Allows says whether the address is in the pods' prefixes.
func (r Rail) Allows(address netip.Addr) bool {
	for _, prefix := range r.Prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// OpenVSwitch says where its sockets are.
type OpenVSwitch struct {
	// Database is a unix socket's path.
	Database string
	// Management is the folder of BRIDGE.mgmt.
	Management string
}

// Backend is how routes get to FRR.
type Backend string

// The backends.
const (
	KernelTable Backend = "kernel-table"
	Vty         Backend = "vty"
)

// FRR says how to speak with it.
type FRR struct {
	Backend Backend
	// BGPSocket is bgpd.vty's path.
	BGPSocket string
	// ASN of this node; needed by the backend vty alone.
	ASN uint32
}

// Kind of tenant directory.
type Kind string

// The kinds.
const (
	Local      Kind = "local"
	Folder     Kind = "folder"
	Kubernetes Kind = "kubernetes"
)

// Tenants says where it is written who belongs to whom.
type Tenants struct {
	Kind Kind
	// Folder that all nodes share; for the kind folder.
	Folder string
	// File of tenants and peerings for the kind local; empty: each namespace is a tenant of its own.
	File string
	// Kubeconfig for the kind kubernetes; empty: the pod's own service account.
	Kubeconfig string
}

// Read the file. A node's name that is not empty goes before the one in the file, which many nodes may share.
func Read(path, node string) (Config, error) {
	content, err := readBounded(path)
	if err != nil {
		return Config{}, err
	}
	config, err := Parse(content, node)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Parse the text of a file; node as Read has it.
func Parse(content []byte, node string) (Config, error) {
	var written file
	if err := strictly(content, &written); err != nil {
		return Config{}, err
	}
	written.Node = orElse(node, written.Node)
	return written.check()
}

func readBounded(path string) ([]byte, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w; give its path with --config", err)
	}
	content, err := io.ReadAll(io.LimitReader(opened, mostBytes+1))
	if err := errors.Join(err, opened.Close()); err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	if len(content) > mostBytes {
		return nil, fmt.Errorf("%s has more than %d bytes; is it railwrightd's configuration?", path, mostBytes)
	}
	return content, nil
}
