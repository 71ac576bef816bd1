// Package attachment describes one interface of one pod on one rail.
package attachment

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Part is a part of an attachment that a plugin requests.
type Part string

// The parts: flows on the rail's bridge, and host routes announced to the rail's leaf.
const (
	Flows  Part = "flows"
	Routes Part = "routes"
)

// Key is CNI's name for an attachment. No field is empty.
type Key struct {
	Network     string `json:"network"`
	ContainerID string `json:"container_id"`
	Interface   string `json:"interface"`
}

func (k Key) String() string {
	return fmt.Sprintf("%s/%s/%s", k.Network, k.ContainerID, k.Interface)
}

// Pod identifies a pod in Kubernetes. Its namespace decides its tenant.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Attachment is the desired state of an interface. It is stored before anything is programmed.
type Attachment struct {
	Key  Key    `json:"key"`
	Pod  Pod    `json:"pod"`
	Part []Part `json:"parts"`
	// Netns is the path that the runtime gave, and NetnsInode its inode at that time: a path can later lead to another
	// namespace.
	Netns      string `json:"netns"`
	NetnsInode uint64 `json:"netns_inode"`
	Rail       string `json:"rail"`
	Tenant     string `json:"tenant"`
	// HostInterface is the representor or veth on the rail's bridge.
	HostInterface string `json:"host_interface"`
	MAC           MAC    `json:"mac"`
	// Addresses are the addresses of the interface in the pod, at most one of each family.
	Addresses []netip.Addr `json:"addresses"`
	// Gateways are the next hops that the flows answer for, at most one of each family.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	DeviceID string       `json:"device_id,omitempty"`
	// MaxRate is the limit in bit/s in each direction. 0 means no limit.
	MaxRate uint64    `json:"max_rate_bits_per_s,omitempty"`
	Added   time.Time `json:"added"`
	// Number identifies the attachment on this node, 1 to 65535, in the cookie of each of its flows. It is unique.
	Number uint16 `json:"number"`
}

// Has reports whether the part was requested.
func (a Attachment) Has(part Part) bool {
	return slices.Contains(a.Part, part)
}

// Prefixes returns the /32 and /128 routes to announce, or nil without Routes.
func (a Attachment) Prefixes() []netip.Prefix {
	if !a.Has(Routes) {
		return nil
	}
	prefixes := make([]netip.Prefix, 0, len(a.Addresses))
	for _, address := range a.Addresses {
		prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
	}
	return prefixes
}

// MAC is a unicast Ethernet address, written as aa:bb:cc:dd:ee:ff.
type MAC [6]byte

// ParseMAC parses a unicast Ethernet address. It refuses the all-zero address.
func ParseMAC(text string) (MAC, error) {
	parsed, err := net.ParseMAC(text)
	if err != nil || len(parsed) != 6 {
		return MAC{}, fmt.Errorf("MAC address must look like 02:00:00:00:01:10, got %.40q", text)
	}
	mac := MAC(parsed)
	if mac[0]&1 == 1 || mac == (MAC{}) {
		return MAC{}, fmt.Errorf("MAC address must be unicast and not zero, got %s", mac)
	}
	return mac, nil
}

func (m MAC) String() string {
	return net.HardwareAddr(m[:]).String()
}

// MarshalText writes the address as String does, which keeps state files readable.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses an address as ParseMAC does.
func (m *MAC) UnmarshalText(text []byte) error {
	parsed, err := ParseMAC(string(text))
	if err == nil {
		*m = parsed
	}
	return err
}
