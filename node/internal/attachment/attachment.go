// Package attachment is what everything else is about: one interface of one pod on one rail.
package attachment

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Part of an attachment that a plugin asked for.
type Part string

// The parts: flows on the rail's bridge, and host routes announced to the rail's leaf.
const (
	Flows  Part = "flows"
	Routes Part = "routes"
)

// Key is what CNI calls an attachment by; never empty in any field.
type Key struct {
	Network     string `json:"network"`
	ContainerID string `json:"container_id"`
	Interface   string `json:"interface"`
}

func (k Key) String() string {
	return fmt.Sprintf("%s/%s/%s", k.Network, k.ContainerID, k.Interface)
}

// Pod as Kubernetes names it. Namespace decides the tenant.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Attachment is the desired state of one interface, as it is stored before anything is programmed.
type Attachment struct {
	Key  Key    `json:"key"`
	Pod  Pod    `json:"pod"`
	Part []Part `json:"parts"`
	// Netns is the path given by the runtime, and NetnsInode what it was then: a path may come to mean another one.
	Netns      string `json:"netns"`
	NetnsInode uint64 `json:"netns_inode"`
	Rail       string `json:"rail"`
	Tenant     string `json:"tenant"`
	// HostInterface is the representor or veth that is a port of the rail's bridge.
	HostInterface string `json:"host_interface"`
	MAC           MAC    `json:"mac"`
	// Addresses of the interface in the pod, one of each family at most.
	Addresses []netip.Addr `json:"addresses"`
	// Gateways that the flows answer for, one of each family at most.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	DeviceID string       `json:"device_id,omitempty"`
	// MaxRate in bit/s, each direction; 0: no bound of its own.
	MaxRate uint64    `json:"max_rate_bits_per_s,omitempty"`
	Added   time.Time `json:"added"`
	// Number is this node's own of the attachment, 1 to 65535, in the cookie of every flow of it. Never two at once.
	Number uint16 `json:"number"`
}

// Has says whether a part was asked for.
func (a Attachment) Has(part Part) bool {
	return slices.Contains(a.Part, part)
}

// Prefixes that are announced: /32 and /128; none without Routes.
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

// MAC is a unicast Ethernet address in six bytes; written aa:bb:cc:dd:ee:ff.
type MAC [6]byte

// ParseMAC takes a unicast address of six bytes that is not all zero.
func ParseMAC(text string) (MAC, error) {
	parsed, err := net.ParseMAC(text)
	if err != nil || len(parsed) != 6 {
		return MAC{}, fmt.Errorf("%.40q is not a MAC address like 02:00:00:00:01:10", text)
	}
	mac := MAC(parsed)
	if mac[0]&1 == 1 || mac == (MAC{}) {
		return MAC{}, fmt.Errorf("%s is not the address of one interface", mac)
	}
	return mac, nil
}

func (m MAC) String() string {
	return net.HardwareAddr(m[:]).String()
}

// MarshalText and UnmarshalText keep it readable in state files.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText takes what ParseMAC takes.
func (m *MAC) UnmarshalText(text []byte) error {
	parsed, err := ParseMAC(string(text))
	if err == nil {
		*m = parsed
	}
	return err
}
