// Package config reads railwrightd's YAML file. It reports all errors at once, each with the field, the value and the
// next step. It refuses unknown fields and suggests the nearest known one.
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

const maxBytes = 1 << 20

// Config is the validated file with its defaults.
type Config struct {
	// Node is this node's name.
	Node        string
	StateFolder string
	Socket      string
	AllowedUIDs []uint32
	// Health is the address of the probes, with the metrics beside.
	Health netip.AddrPort
	// Metrics is another address that serves only the metrics. It is invalid if there is none.
	Metrics      netip.AddrPort
	NetnsFolders []string
	Rails        []Rail
	// RetiredRails are no longer in the file, but have or had attachments.
	RetiredRails []Rail
	OpenVSwitch  OpenVSwitch
	FRR          FRR
	Tenants      Tenants
	// AdvertiseTimeout is how long an ADD waits until its routes were sent to the leaf.
	AdvertiseTimeout time.Duration
	// ForwardTimeout is how long an ADD waits until the leaf has sent a packet for the pod. 0 means that it does not
	// wait.
	ForwardTimeout time.Duration
	// ConfirmTimeout has no effect any more; earlier versions waited for other nodes. It is still read.
	ConfirmTimeout time.Duration
}

// Rail is a NIC with its bridge and its leaf.
type Rail struct {
	plan.Rail
	// Leaf is the leaf's address. It is invalid for unnumbered BGP.
	Leaf netip.Addr
	// SecondLeaf is the address of the second leaf. It is invalid without one.
	SecondLeaf netip.Addr
	// IPv4 and IPv6 are the families that pods may use.
	IPv4, IPv6 bool
	// Prefixes contain the pods' addresses. FRR's filter permits the same.
	Prefixes []netip.Prefix
	// MaxPrefixes limits the announced prefixes. It must stay below the leaf's maximum-prefix, which would end the
	// whole session.
	MaxPrefixes int
	// Retired reports that the rail is not configured any more. It takes no new attachment, and is forgotten once it
	// has none.
	Retired bool
}

// EveryRail returns all rails that may have flows or routes: first the configured, then the retired ones.
func (c Config) EveryRail() []Rail { return slices.Concat(c.Rails, c.RetiredRails) }

// Leaves returns the addresses of the rail's leaves that have one.
func (r Rail) Leaves() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{r.Leaf, r.SecondLeaf}, func(leaf netip.Addr) bool { return !leaf.IsValid() })
}

// Carries reports whether pods may have addresses of this family on the rail.
func (r Rail) Carries(address netip.Addr) bool {
	return address.Is4() && r.IPv4 || address.Is6() && r.IPv6
}

// Allows reports whether the address is in the pods' prefixes.
func (r Rail) Allows(address netip.Addr) bool {
	for _, prefix := range r.Prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// OpenVSwitch locates Open vSwitch's sockets.
type OpenVSwitch struct {
	// Database is the path of the database's unix socket.
	Database string
	// Management is the folder of BRIDGE.mgmt.
	Management string
}

// Backend selects how routes enter FRR.
type Backend string

// The supported backends.
const (
	KernelTable Backend = "kernel-table"
	Vty         Backend = "vty"
)

// FRR configures the connection to FRR.
type FRR struct {
	Backend Backend
	// BGPSocket is the path of bgpd.vty.
	BGPSocket string
	// ASN is this node's AS number. Only the backend vty needs it.
	ASN uint32
}

// Kind is a kind of tenant directory.
type Kind string

// The supported kinds.
const (
	Local      Kind = "local"
	Folder     Kind = "folder"
	Kubernetes Kind = "kubernetes"
)

// Tenants configures the tenant directory.
type Tenants struct {
	Kind Kind
	// Folder is shared by all nodes. Only the kind folder uses it.
	Folder string
	// File lists tenants and peerings for the kind local. If empty, each namespace is a tenant.
	File string
	// Kubeconfig is for the kind kubernetes. If empty, the pod's service account is used.
	Kubeconfig string
}

// Own are settings of a node that override the file, which many nodes can share, unless they are empty.
type Own struct{ Node, Metrics string }

// Read reads the file.
func Read(path string, own Own) (Config, error) {
	content, err := readBounded(path)
	if err != nil {
		return Config{}, err
	}
	config, err := Parse(content, own)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Parse parses the text of a file.
func Parse(content []byte, own Own) (Config, error) {
	var written file
	if err := unmarshalStrict(content, &written); err != nil {
		return Config{}, err
	}
	written.Node, written.Metrics = orElse(own.Node, written.Node), orElse(own.Metrics, written.Metrics)
	return written.check()
}

func readBounded(path string) ([]byte, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w; set its path with --config", err)
	}
	content, err := io.ReadAll(io.LimitReader(opened, maxBytes+1))
	if err := errors.Join(err, opened.Close()); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(content) > maxBytes {
		return nil, fmt.Errorf("%s must have at most %d bytes; check that it is railwrightd's configuration", path, maxBytes)
	}
	return content, nil
}
