package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netlink"
)

// podDifferences compares the interface in the pod with prevResult and ADD's settings. The flows are made for these:
// with another MAC address or IP address none of the pod's packets pass. An error means that the comparison was not
// possible.
func (c call) podDifferences(arguments *skel.CmdArgs) ([]string, error) {
	wishes, err := c.fields.podSettings()
	if err != nil {
		return nil, err
	}
	found, err := readPrevious(c.fields["prevResult"], c.settings.Version, c.key.Interface)
	if err != nil {
		return nil, err
	}
	if err := checkNetns(arguments); err != nil {
		return nil, err
	}
	inside, err := handleIn(arguments.Netns)
	if err != nil {
		return nil, configureFailure(err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(arguments.IfName)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return []string{fmt.Sprintf("the pod has no interface %s", arguments.IfName)}, nil
	}
	if err != nil {
		return nil, configureFailure(err)
	}
	different := linkDifferences(link.Attrs(), found, wishes)
	addresses, err := addressDifferences(inside, link, found.addresses)
	if err != nil {
		return nil, configureFailure(err)
	}
	routes, err := routeDifferences(inside, link, wishes.Routes)
	if err != nil {
		return nil, configureFailure(err)
	}
	return slices.Concat(different, addresses, routes), nil
}

func linkDifferences(seen *netlink.LinkAttrs, found previous, wishes PodSettings) []string {
	var different []string
	if seen.Flags&net.FlagUp == 0 {
		different = append(different, fmt.Sprintf("%s in the pod is down", seen.Name))
	}
	if mac := seen.HardwareAddr.String(); mac != found.mac.String() {
		different = append(different, fmt.Sprintf("%s in the pod must have MAC address %s, got %s", seen.Name, found.mac, mac))
	}
	mtu := wishes.MTU
	if mtu == 0 {
		mtu = found.current.Interfaces[found.pod].Mtu
	}
	if mtu != 0 && seen.MTU != mtu {
		different = append(different, fmt.Sprintf("%s in the pod must have an MTU of %d bytes, got %d", seen.Name, mtu, seen.MTU))
	}
	return different
}

func addressDifferences(inside *netlink.Handle, link netlink.Link, want []netip.Addr) ([]string, error) {
	held, err := inside.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	there := map[netip.Addr]bool{}
	for _, entry := range held {
		if address, ok := netip.AddrFromSlice(entry.IP); ok {
			there[address.Unmap()] = true
		}
	}
	var different []string
	for _, address := range want {
		if !there[address] {
			different = append(different, fmt.Sprintf("%s in the pod lacks address %s", link.Attrs().Name, address))
		}
	}
	return different, nil
}

// routeDifferences returns the missing routes of this plugin. Routes of other plugins are ignored.
func routeDifferences(inside *netlink.Handle, link netlink.Link, want []netip.Prefix) ([]string, error) {
	if len(want) == 0 {
		return nil, nil
	}
	held, err := inside.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	there := map[netip.Prefix]bool{}
	for _, route := range held {
		there[destinationOf(route)] = true
	}
	var different []string
	for _, destination := range want {
		if !there[destination] {
			different = append(different, fmt.Sprintf("pod has no route to %s through %s", destination, link.Attrs().Name))
		}
	}
	return different, nil
}

func destinationOf(route netlink.Route) netip.Prefix {
	if route.Dst == nil {
		if route.Family == netlink.FAMILY_V6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	address, _ := netip.AddrFromSlice(route.Dst.IP)
	bits, _ := route.Dst.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits)
}
