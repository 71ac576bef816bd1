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

// podDifferences between prevResult, with what ADD was to lay, and the interface in the pod. The flows are made for that
// one: with another MAC or address nothing of the pod's passes. An error: it cannot be judged.
func (c call) podDifferences(arguments *skel.CmdArgs) ([]string, error) {
	wishes, err := c.fields.wishes()
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
		return nil, layFailure(err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(arguments.IfName)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return []string{fmt.Sprintf("the pod has no interface %s", arguments.IfName)}, nil
	}
	if err != nil {
		return nil, layFailure(err)
	}
	different := linkDifferences(link.Attrs(), found, wishes)
	addresses, err := addressDifferences(inside, link, found.addresses)
	if err != nil {
		return nil, layFailure(err)
	}
	routes, err := routeDifferences(inside, link, wishes.Routes)
	if err != nil {
		return nil, layFailure(err)
	}
	return slices.Concat(different, addresses, routes), nil
}

func linkDifferences(seen *netlink.LinkAttrs, found previous, wishes Wishes) []string {
	var different []string
	if seen.Flags&net.FlagUp == 0 {
		different = append(different, fmt.Sprintf("%s in the pod is down", seen.Name))
	}
	if mac := seen.HardwareAddr.String(); mac != found.mac.String() {
		different = append(different, fmt.Sprintf("%s in the pod has the MAC address %s, not %s", seen.Name, mac, found.mac))
	}
	mtu := wishes.MTU
	if mtu == 0 {
		mtu = found.current.Interfaces[found.pod].Mtu
	}
	if mtu != 0 && seen.MTU != mtu {
		different = append(different, fmt.Sprintf("%s in the pod has an MTU of %d bytes, not %d", seen.Name, seen.MTU, mtu))
	}
	return different
}

func addressDifferences(inside *netlink.Handle, link netlink.Link, want []netip.Addr) ([]string, error) {
	held, err := inside.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	there := map[netip.Addr]bool{}
	for _, held1 := range held {
		if address, ok := netip.AddrFromSlice(held1.IP); ok {
			there[address.Unmap()] = true
		}
	}
	var different []string
	for _, address := range want {
		if !there[address] {
			different = append(different, fmt.Sprintf("%s in the pod lacks the address %s", link.Attrs().Name, address))
		}
	}
	return different, nil
}

// routeDifferences of those that ADD was to lay; others are the other plugins'.
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
			different = append(different, fmt.Sprintf("the pod has no route to %s by %s", destination, link.Attrs().Name))
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
