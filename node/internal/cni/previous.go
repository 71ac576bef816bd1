package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"railwright/node/internal/attachment"
)

// previous is what the plugins before us in the chain have made.
type previous struct {
	// told is their result as it came, and current the same in the newest version.
	result  types.Result
	current *types100.Result
	// pod is the index of the pod's interface in current.
	pod           int
	hostInterface string
	mac           attachment.MAC
	addresses     []netip.Addr
	gateways      []netip.Addr
}

const chainAfterOVS = "list this plugin after ovs, or another that puts the pod's port on the rail's bridge"

// readPrevious finds the pod's interface and its other end on the host in prevResult.
func readPrevious(raw json.RawMessage, cniVersion, interfaceName string) (previous, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return previous{}, badChain(errors.New("there is no prevResult"))
	}
	parsed, current, err := parseResult(raw, cniVersion)
	if err != nil {
		return previous{}, badChain(fmt.Errorf("prevResult cannot be read: %w", err))
	}
	found := previous{result: parsed, current: current}
	if err := found.findInterfaces(interfaceName); err != nil {
		return previous{}, badChain(fmt.Errorf("prevResult: %w", err))
	}
	if err := found.findAddresses(); err != nil {
		return previous{}, badChain(fmt.Errorf("prevResult: %w", err))
	}
	return found, nil
}

func badChain(err error) error {
	return failure(types.ErrInvalidNetworkConfig, chainAfterOVS, "%v", err)
}

// parseResult in the version that the configuration has. The library's conversions take no null in a list, so these are
// refused first.
func parseResult(raw json.RawMessage, cniVersion string) (types.Result, *types100.Result, error) {
	config := types.PluginConf{CNIVersion: cniVersion}
	if err := json.Unmarshal(raw, &config.RawPrevResult); err != nil {
		return nil, nil, err
	}
	if err := version.ParsePrevResult(&config); err != nil {
		return nil, nil, err
	}
	var hole bool
	switch result := config.PrevResult.(type) {
	case *types040.Result:
		hole = slices.Contains(result.Interfaces, nil) || slices.Contains(result.IPs, nil) || slices.Contains(result.Routes, nil)
	case *types100.Result:
		hole = slices.Contains(result.Interfaces, nil) || slices.Contains(result.IPs, nil) || slices.Contains(result.Routes, nil)
	default:
		return nil, nil, fmt.Errorf("version %q has no interfaces", cniVersion)
	}
	if hole {
		return nil, nil, errors.New("a null among interfaces, ips or routes")
	}
	current, err := types100.NewResultFromResult(config.PrevResult)
	return config.PrevResult, current, err
}

// findInterfaces: the pod's has a sandbox and CNI_IFNAME as its name; the host's has none.
func (p *previous) findInterfaces(name string) error {
	p.pod = -1
	var onHost []string
	for index, candidate := range p.current.Interfaces {
		switch {
		case candidate.Sandbox == "":
			onHost = append(onHost, candidate.Name)
		case candidate.Name != name:
		case p.pod >= 0:
			return fmt.Errorf("two interfaces %q with a sandbox", name)
		default:
			p.pod = index
		}
	}
	if p.pod < 0 {
		return fmt.Errorf("none of its %d interfaces is %q with a sandbox", len(p.current.Interfaces), name)
	}
	if len(onHost) != 1 || onHost[0] == "" {
		return fmt.Errorf("%d interfaces without a sandbox (%.80q), so which is the pod's on the host is not known",
			len(onHost), strings.Join(onHost, ", "))
	}
	p.hostInterface = onHost[0]
	mac, err := attachment.ParseMAC(p.current.Interfaces[p.pod].Mac)
	p.mac = mac
	return err
}

// findAddresses of the pod's interface: one of each family at most, and one at least.
func (p *previous) findAddresses() error {
	for _, config := range p.current.IPs {
		if index := config.Interface; index != nil {
			if *index < 0 || *index >= len(p.current.Interfaces) {
				return fmt.Errorf("an address of interface %d of %d", *index, len(p.current.Interfaces))
			}
			if *index != p.pod {
				continue
			}
		}
		address, err := addAddress(&p.addresses, config.Address.IP)
		if err != nil {
			return fmt.Errorf("address %w", err)
		}
		if len(config.Gateway) == 0 {
			continue
		}
		gateway, err := addAddress(&p.gateways, config.Gateway)
		if err != nil {
			return fmt.Errorf("gateway %w", err)
		}
		if gateway.Is4() != address.Is4() {
			return fmt.Errorf("gateway %s of address %s is of the other family", gateway, address)
		}
	}
	if len(p.addresses) == 0 {
		return errors.New("the pod's interface has no address: the plugin before needs an ipam")
	}
	return nil
}

func addAddress(known *[]netip.Addr, ip net.IP) (netip.Addr, error) {
	address, ok := netip.AddrFromSlice(ip)
	if !ok {
		return address, fmt.Errorf("%.40q is none", ip.String())
	}
	address = address.Unmap()
	for _, other := range *known {
		if other.Is4() == address.Is4() {
			return address, fmt.Errorf("%s beside %s: one of each family is laid", address, other)
		}
	}
	*known = append(*known, address)
	return address, nil
}

// gatewayFor a route of this family, if there is one.
func (p *previous) gatewayFor(destination netip.Prefix) (netip.Addr, bool) {
	for _, gateway := range p.gateways {
		if gateway.Is4() == destination.Addr().Is4() {
			return gateway, true
		}
	}
	return netip.Addr{}, false
}
