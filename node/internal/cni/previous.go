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

// previous is the result of the earlier plugins of the chain.
type previous struct {
	// result is prevResult as received; current is the same in the newest version.
	result  types.Result
	current *types100.Result
	// pod is the index of the pod's interface in current.
	pod           int
	hostInterface string
	mac           attachment.MAC
	addresses     []netip.Addr
	gateways      []netip.Addr
}

const chainAfterOVS = "list this plugin after ovs, or after another plugin that adds the pod's port to the rail's bridge"

// readPrevious finds the pod's interface and its host end in prevResult.
func readPrevious(raw json.RawMessage, cniVersion, interfaceName string) (previous, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return previous{}, badChain(errors.New("prevResult is required"))
	}
	parsed, current, err := parseResult(raw, cniVersion)
	if err != nil {
		return previous{}, badChain(fmt.Errorf("parse prevResult: %w", err))
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

// parseResult parses prevResult in the version of the configuration. It refuses null in lists, on which the library's
// conversions would panic.
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
		return nil, nil, errors.New("interfaces, ips and routes must not contain null")
	}
	current, err := types100.NewResultFromResult(config.PrevResult)
	return config.PrevResult, current, err
}

// findInterfaces finds the pod's interface, which has a sandbox and the name CNI_IFNAME, and the host's, which has no
// sandbox.
func (p *previous) findInterfaces(name string) error {
	p.pod = -1
	var onHost []string
	for index, candidate := range p.current.Interfaces {
		switch {
		case candidate.Sandbox == "":
			onHost = append(onHost, candidate.Name)
		case candidate.Name != name:
		case p.pod >= 0:
			return fmt.Errorf("must have a single interface %q with a sandbox, got two", name)
		default:
			p.pod = index
		}
	}
	if p.pod < 0 {
		return fmt.Errorf("must have an interface %q with a sandbox, got none in %d", name, len(p.current.Interfaces))
	}
	if len(onHost) != 1 || onHost[0] == "" {
		return fmt.Errorf("must have a single named interface without a sandbox, got %d: %.80q",
			len(onHost), strings.Join(onHost, ", "))
	}
	p.hostInterface = onHost[0]
	mac, err := attachment.ParseMAC(p.current.Interfaces[p.pod].Mac)
	p.mac = mac
	return err
}

// findAddresses finds the addresses of the pod's interface: at least one, and at most one of each family.
func (p *previous) findAddresses() error {
	for _, config := range p.current.IPs {
		if index := config.Interface; index != nil {
			if *index < 0 || *index >= len(p.current.Interfaces) {
				return fmt.Errorf("interface index must be below %d, got %d", len(p.current.Interfaces), *index)
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
			return fmt.Errorf("gateway %s must be of the same family as address %s", gateway, address)
		}
	}
	if len(p.addresses) == 0 {
		return errors.New("the pod's interface must have an address; configure an ipam in the plugin before")
	}
	return nil
}

func addAddress(known *[]netip.Addr, ip net.IP) (netip.Addr, error) {
	address, ok := netip.AddrFromSlice(ip)
	if !ok {
		return address, fmt.Errorf("must be an IP address, got %.40q", ip.String())
	}
	address = address.Unmap()
	for _, other := range *known {
		if other.Is4() == address.Is4() {
			return address, fmt.Errorf("%s is the second of its family, after %s", address, other)
		}
	}
	*known = append(*known, address)
	return address, nil
}

// gatewayFor returns the gateway of the destination's family, if any.
func (p *previous) gatewayFor(destination netip.Prefix) (netip.Addr, bool) {
	for _, gateway := range p.gateways {
		if gateway.Is4() == destination.Addr().Is4() {
			return gateway, true
		}
	}
	return netip.Addr{}, false
}
