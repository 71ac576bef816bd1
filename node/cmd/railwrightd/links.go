package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// links reads interfaces of this host by netlink.
type links struct{}

func (links) Up(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return false, fmt.Errorf("read interface: %w", err)
	}
	return link.Attrs().OperState == netlink.OperUp, nil
}

func (links) Gone(name string) bool {
	_, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

func (links) Within(prefixes []netip.Prefix) ([]string, error) {
	found, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for try := 1; try < 5 && errors.Is(err, netlink.ErrDumpInterrupted); try++ {
		found, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, assigned := range found {
		address, _ := netip.AddrFromSlice(assigned.IP)
		address = address.Unmap()
		if !slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(address) }) {
			continue
		}
		name := fmt.Sprintf("interface %d", assigned.LinkIndex)
		if link, err := netlink.LinkByIndex(assigned.LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		addresses = append(addresses, fmt.Sprintf("%v (%s)", address, name))
	}
	return addresses, nil
}
