package server

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

// Bounds of what a request may hold.
const (
	mostKeys = 20_000
	// mostRate is 10 Tbit/s, more than any port; what is above is a slip of units.
	mostRate = 10_000_000_000_000
)

var (
	podUID   = regexp.MustCompile(`^[A-Za-z0-9-]{0,64}$`)
	hostLink = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}$`)
)

// wantedOf an ADD, every field of it bounded and typed. What the node decides is left out: rail, tenant, number.
func wantedOf(request *nodev1.AddRequest) (attachment.Attachment, error) {
	key, err := keyOf(request.GetKey())
	if err != nil {
		return attachment.Attachment{}, err
	}
	parts, err := partsOf(request.GetParts())
	if err != nil {
		return attachment.Attachment{}, err
	}
	pod, err := podOf(request.GetPod())
	if err != nil {
		return attachment.Attachment{}, err
	}
	if err := checkWhere(request); err != nil {
		return attachment.Attachment{}, err
	}
	mac, err := attachment.ParseMAC(request.GetMac())
	if err != nil {
		return attachment.Attachment{}, badConfig("mac: %v", err)
	}
	addresses, gateways, err := addressesOf(request)
	if err != nil {
		return attachment.Attachment{}, err
	}
	if request.GetMaxRateBitsPerS() > mostRate {
		return attachment.Attachment{}, badConfig("max_rate %d bit/s is above %d bit/s", request.GetMaxRateBitsPerS(),
			uint64(mostRate))
	}
	return attachment.Attachment{
		Key: key, Part: parts, Pod: pod, Netns: request.GetNetns(), HostInterface: request.GetHostInterface(), MAC: mac,
		Addresses: addresses, Gateways: gateways, DeviceID: request.GetDeviceId(), MaxRate: request.GetMaxRateBitsPerS(),
	}, nil
}

func keyOf(message *nodev1.Key) (attachment.Key, error) {
	key := attachment.Key{
		Network: message.GetNetwork(), ContainerID: message.GetContainerId(), Interface: message.GetInterface(),
	}
	if err := key.Check(); err != nil {
		return attachment.Key{}, badName("%v", err)
	}
	return key, nil
}

func partsOf(messages []nodev1.Part) ([]attachment.Part, error) {
	var parts []attachment.Part
	seen := map[nodev1.Part]bool{}
	for _, part := range messages {
		switch {
		case seen[part]:
			return nil, badConfig("part %s is there twice", part)
		case part == nodev1.Part_PART_FLOWS:
			parts = append(parts, attachment.Flows)
		case part == nodev1.Part_PART_ROUTES:
			parts = append(parts, attachment.Routes)
		default:
			return nil, badConfig("part %d is none", part)
		}
		seen[part] = true
	}
	if len(parts) == 0 {
		return nil, badConfig("no part is asked for")
	}
	return parts, nil
}

func podOf(message *nodev1.Pod) (attachment.Pod, error) {
	pod := attachment.Pod{Namespace: message.GetNamespace(), Name: message.GetName(), UID: message.GetUid()}
	if broken := validation.IsDNS1123Label(pod.Namespace); len(broken) > 0 {
		return attachment.Pod{}, badName("K8S_POD_NAMESPACE %.80q is no namespace, which decides the tenant: %s",
			pod.Namespace, strings.Join(broken, "; "))
	}
	if broken := validation.IsDNS1123Subdomain(pod.Name); len(broken) > 0 {
		return attachment.Pod{}, badName("K8S_POD_NAME %.80q is no pod's name: %s", pod.Name, strings.Join(broken, "; "))
	}
	if !podUID.MatchString(pod.UID) {
		return attachment.Pod{}, badName("K8S_POD_UID %.80q is no pod's UID", pod.UID)
	}
	return pod, nil
}

// checkWhere the attachment is: namespace, interface and device.
func checkWhere(request *nodev1.AddRequest) error {
	netns := request.GetNetns()
	if !attachment.IsPath(netns) || filepath.Clean(netns) != netns {
		return badName("CNI_NETNS %.120q is no path to a network namespace", netns)
	}
	if !hostLink.MatchString(request.GetHostInterface()) {
		return badConfig("the host's interface %.40q is no interface's name", request.GetHostInterface())
	}
	if device := request.GetDeviceId(); device != "" && !attachment.IsPCI(device) {
		return badConfig("deviceID %.40q is no PCI address like 0000:01:10.0", device)
	}
	return nil
}

func addressesOf(request *nodev1.AddRequest) (addresses, gateways []netip.Addr, err error) {
	addresses, err = eachFamilyOnce("address", request.GetAddresses(), podAddress)
	if err != nil {
		return nil, nil, err
	}
	if len(addresses) == 0 {
		return nil, nil, badConfig("the pod's interface has no address")
	}
	gateways, err = eachFamilyOnce("gateway", request.GetGateways(), gatewayAddress)
	if err != nil {
		return nil, nil, err
	}
	for _, gateway := range gateways {
		served := false
		for _, address := range addresses {
			if address == gateway {
				return nil, nil, badConfig("%s is the pod's address and its gateway", address)
			}
			served = served || address.Is4() == gateway.Is4()
		}
		if !served {
			return nil, nil, badConfig("the gateway %s is of a family that the pod has no address of", gateway)
		}
	}
	return addresses, gateways, nil
}

// eachFamilyOnce parses addresses; IPv4 comes first, so that the same ones always compare equal.
func eachFamilyOnce(name string, texts []string, check func(netip.Addr) string) ([]netip.Addr, error) {
	if len(texts) > 2 {
		return nil, badConfig("%d values for %s: one of each family at most", len(texts), name)
	}
	var parsed []netip.Addr
	for _, text := range texts {
		address, err := parse(text)
		if err != nil {
			return nil, badConfig("%s %v", name, err)
		}
		if wrong := check(address); wrong != "" {
			return nil, badConfig("%s %s is %s", name, address, wrong)
		}
		parsed = append(parsed, address)
	}
	if len(parsed) == 2 {
		if parsed[0].Is4() == parsed[1].Is4() {
			return nil, badConfig("%s: %s and %s are of one family; one of each at most", name, parsed[0], parsed[1])
		}
		if parsed[1].Is4() {
			parsed[0], parsed[1] = parsed[1], parsed[0]
		}
	}
	return parsed, nil
}

func parse(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || address.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%.60q is no plain address like 10.1.0.5 or fd00::5", text)
	}
	return address, nil
}

var (
	// thisNetwork and reserved addresses are nobody's; the broadcast address is among the reserved.
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	reserved    = netip.MustParsePrefix("240.0.0.0/4")
)

// podAddress says why a pod cannot have the address; empty: it can.
func podAddress(address netip.Addr) string {
	switch {
	case address.IsLinkLocalUnicast():
		return "link-local: it has no route"
	case address.IsLoopback(), address.IsUnspecified(), address.IsMulticast():
		return "not the address of one interface"
	case address.Is4() && (thisNetwork.Contains(address) || reserved.Contains(address)):
		return "reserved"
	}
	return ""
}

// gatewayAddress may be link-local besides.
func gatewayAddress(address netip.Addr) string {
	if address.IsLinkLocalUnicast() {
		return ""
	}
	return podAddress(address)
}
