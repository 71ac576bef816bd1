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

// Limits of a request.
const (
	maxKeys = 20_000
	// maxRate is the highest whole Gbit/s of an OpenFlow meter, whose rate in kbit/s has 32 bits. It is more than any
	// port has.
	maxRate = 4_294_000_000_000
)

var (
	podUID   = regexp.MustCompile(`^[A-Za-z0-9-]{0,64}$`)
	hostLink = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}$`)
)

// attachmentOf converts an ADD request, with every field validated. The node itself sets rail, tenant and number.
func attachmentOf(request *nodev1.AddRequest) (attachment.Attachment, error) {
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
	if err := checkLocation(request); err != nil {
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
	if request.GetMaxRateBitsPerS() > maxRate {
		return attachment.Attachment{}, badConfig("max_rate must be at most %d bit/s, got %d", uint64(maxRate),
			request.GetMaxRateBitsPerS())
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
			return nil, badConfig("part %s is given twice", part)
		case part == nodev1.Part_PART_FLOWS:
			parts = append(parts, attachment.Flows)
		case part == nodev1.Part_PART_ROUTES:
			parts = append(parts, attachment.Routes)
		default:
			return nil, badConfig("part must be flows or routes, got %d", part)
		}
		seen[part] = true
	}
	if len(parts) == 0 {
		return nil, badConfig("parts must not be empty")
	}
	return parts, nil
}

func podOf(message *nodev1.Pod) (attachment.Pod, error) {
	pod := attachment.Pod{Namespace: message.GetNamespace(), Name: message.GetName(), UID: message.GetUid()}
	if broken := validation.IsDNS1123Label(pod.Namespace); len(broken) > 0 {
		return attachment.Pod{}, badName("K8S_POD_NAMESPACE must be a namespace, got %.80q: %s",
			pod.Namespace, strings.Join(broken, "; "))
	}
	if broken := validation.IsDNS1123Subdomain(pod.Name); len(broken) > 0 {
		return attachment.Pod{}, badName("K8S_POD_NAME must be a pod's name, got %.80q: %s", pod.Name, strings.Join(broken, "; "))
	}
	if !podUID.MatchString(pod.UID) {
		return attachment.Pod{}, badName("K8S_POD_UID must be a pod's UID, got %.80q", pod.UID)
	}
	return pod, nil
}

// checkLocation validates the namespace, the interface and the device.
func checkLocation(request *nodev1.AddRequest) error {
	netns := request.GetNetns()
	if !attachment.IsPath(netns) || filepath.Clean(netns) != netns {
		return badName("CNI_NETNS must be the path of a network namespace, got %.120q", netns)
	}
	if !hostLink.MatchString(request.GetHostInterface()) {
		return badConfig("host interface must be an interface name, got %.40q", request.GetHostInterface())
	}
	if device := request.GetDeviceId(); device != "" && !attachment.IsPCI(device) {
		return badConfig("deviceID must be a PCI address like 0000:01:10.0, got %.40q", device)
	}
	return nil
}

func addressesOf(request *nodev1.AddRequest) (addresses, gateways []netip.Addr, err error) {
	addresses, err = eachFamilyOnce("address", request.GetAddresses(), podAddress)
	if err != nil {
		return nil, nil, err
	}
	if len(addresses) == 0 {
		return nil, nil, badConfig("the pod's interface must have an address")
	}
	gateways, err = eachFamilyOnce("gateway", request.GetGateways(), gatewayAddress)
	if err != nil {
		return nil, nil, err
	}
	for _, gateway := range gateways {
		served := false
		for _, address := range addresses {
			if address == gateway {
				return nil, nil, badConfig("%s must not be both the pod's address and the gateway", address)
			}
			served = served || address.Is4() == gateway.Is4()
		}
		if !served {
			return nil, nil, badConfig("gateway %s is of a family in which the pod has no address", gateway)
		}
	}
	return addresses, gateways, nil
}

// eachFamilyOnce parses addresses, at most one of each family. IPv4 comes first, so that equal sets compare equal.
func eachFamilyOnce(name string, texts []string, check func(netip.Addr) string) ([]netip.Addr, error) {
	if len(texts) > 2 {
		return nil, badConfig("%s must have at most one value of each family, got %d", name, len(texts))
	}
	var parsed []netip.Addr
	for _, text := range texts {
		address, err := parse(text)
		if err != nil {
			return nil, badConfig("%s %v", name, err)
		}
		if wrong := check(address); wrong != "" {
			return nil, badConfig("%s must be usable by a pod, got %s, which is %s", name, address, wrong)
		}
		parsed = append(parsed, address)
	}
	if len(parsed) == 2 {
		if parsed[0].Is4() == parsed[1].Is4() {
			return nil, badConfig("%s must have at most one value of each family; %s and %s are of one family", name, parsed[0], parsed[1])
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
		return netip.Addr{}, fmt.Errorf("must be an address like 10.1.0.5 or fd00::5, got %.60q", text)
	}
	return address, nil
}

var (
	// thisNetwork and reserved contain addresses that no interface can have; reserved includes the broadcast address.
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	reserved    = netip.MustParsePrefix("240.0.0.0/4")
)

// podAddress returns why a pod cannot have the address, or "".
func podAddress(address netip.Addr) string {
	switch {
	case address.IsLinkLocalUnicast():
		return "link-local and has no route"
	case address.IsLoopback(), address.IsUnspecified(), address.IsMulticast():
		return "not the address of a single interface"
	case address.Is4() && (thisNetwork.Contains(address) || reserved.Contains(address)):
		return "reserved"
	}
	return ""
}

// gatewayAddress returns why an address cannot be a gateway, or "". A gateway may be link-local.
func gatewayAddress(address netip.Addr) string {
	if address.IsLinkLocalUnicast() {
		return ""
	}
	return podAddress(address)
}
