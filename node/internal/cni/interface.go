package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

const netlinkTimeout = 5 * time.Second

// changes records the changes to the pod's interface so that they can be undone.
type changes struct {
	inside *netlink.Handle
	undo   []func() error
}

// configurePod configures the pod as the flows require: a permanent neighbour entry of each gateway, so that the first
// packet needs no ARP or neighbour discovery; checksums in the kernel if the datapath makes none; and the requested MTU
// and routes.
func configurePod(netnsPath, interfaceName string, found *previous, wishes PodSettings, reply *nodev1.AddReply) (*changes, error) {
	done := &changes{}
	gateway, err := parseGatewayMAC(reply.GetGatewayMac())
	if err != nil {
		return done, err
	}
	if gateway == nil && wishes.MTU == 0 && len(wishes.Routes) == 0 && !reply.GetUserspaceDatapath() {
		return done, nil
	}
	done.inside, err = handleIn(netnsPath)
	if err != nil {
		return done, configureFailure(err)
	}
	err = done.all(interfaceName, found, wishes, gateway)
	if err == nil && reply.GetUserspaceDatapath() {
		err = done.disableChecksumOffload(netnsPath, interfaceName)
	}
	if err != nil {
		done.undoAll()
		err = configureFailure(fmt.Errorf("%s in %s: %w", interfaceName, netnsPath, err))
	}
	return done, err
}

func (l *changes) all(name string, found *previous, wishes PodSettings, gateway net.HardwareAddr) error {
	link, err := l.inside.LinkByName(name)
	if err != nil {
		return err
	}
	if wishes.MTU != 0 {
		if err := l.setMTU(link, found.hostInterface, wishes.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", wishes.MTU, err)
		}
		found.current.Interfaces[found.pod].Mtu = wishes.MTU
	}
	for _, address := range found.gateways {
		if err := l.addNeighbour(link, address, gateway); err != nil {
			return fmt.Errorf("neighbour %s: %w", address, err)
		}
	}
	for _, destination := range wishes.Routes {
		if err := l.addRoute(link, found, destination); err != nil {
			return fmt.Errorf("route to %s: %w", destination, err)
		}
	}
	return nil
}

// setMTU sets the MTU on both ends: a representor with a lower MTU drops the pod's packets.
func (l *changes) setMTU(link netlink.Link, hostInterface string, mtu int) error {
	onHost, err := netlink.LinkByName(hostInterface)
	if err != nil {
		return fmt.Errorf("%.40q on the host: %w", hostInterface, err)
	}
	before, hostBefore := link.Attrs().MTU, onHost.Attrs().MTU
	l.undo = append(l.undo, func() error {
		return errors.Join(l.inside.LinkSetMTU(link, before), netlink.LinkSetMTU(onHost, hostBefore))
	})
	if err := netlink.LinkSetMTU(onHost, mtu); err != nil {
		return fmt.Errorf("%.40q on the host: %w", hostInterface, err)
	}
	return l.inside.LinkSetMTU(link, mtu)
}

func (l *changes) addNeighbour(link netlink.Link, address netip.Addr, gateway net.HardwareAddr) error {
	if gateway == nil {
		return nil
	}
	family := netlink.FAMILY_V4
	if address.Is6() {
		family = netlink.FAMILY_V6
	}
	neighbour := &netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT,
		IP: address.AsSlice(), HardwareAddr: gateway,
	}
	if err := l.inside.NeighSet(neighbour); err != nil {
		return err
	}
	l.undo = append(l.undo, func() error { return l.inside.NeighDel(neighbour) })
	return nil
}

// addRoute adds an on-link route: the gateway may be outside the address's prefix, which can be a /32.
func (l *changes) addRoute(link netlink.Link, found *previous, destination netip.Prefix) error {
	gateway, ok := found.gatewayFor(destination)
	if !ok {
		return errors.New("prevResult has no gateway of its family")
	}
	target := &net.IPNet{IP: destination.Addr().AsSlice(), Mask: net.CIDRMask(destination.Bits(), destination.Addr().BitLen())}
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: target, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	}
	if err := l.inside.RouteReplace(route); err != nil {
		return err
	}
	l.undo = append(l.undo, func() error { return l.inside.RouteDel(route) })
	found.current.Routes = append(found.current.Routes, &types.Route{Dst: *target, GW: gateway.AsSlice()})
	return nil
}

// undoAll undoes the changes in reverse order. Changes that cannot be undone disappear with the interface.
func (l *changes) undoAll() {
	for index := len(l.undo) - 1; index >= 0; index-- {
		_ = l.undo[index]()
	}
	l.undo = nil
}

func (l *changes) close() {
	if l.inside != nil {
		l.inside.Close()
	}
}

// handleIn opens a netlink socket inside the namespace. This process does not change its namespace.
func handleIn(path string) (*netlink.Handle, error) {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer namespace.Close()
	inside, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket in network namespace %s: %w", path, err)
	}
	return inside, inside.SetSocketTimeout(netlinkTimeout)
}

// parseGatewayMAC parses the daemon's MAC address. None is valid, because the flows answer for the gateway too.
func parseGatewayMAC(text string) (net.HardwareAddr, error) {
	if text == "" {
		return nil, nil
	}
	mac, err := attachment.ParseMAC(text)
	if err != nil {
		return nil, failure(types.ErrInternal, checkDaemon, "parse gateway of railwrightd: %v", err)
	}
	return mac[:], nil
}

func configureFailure(err error) error {
	hint := "inspect it with nsenter --net=NETNS ip address; an earlier plugin of the network or a sysctl may have changed it"
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		hint = chainAfterOVS
	}
	return failure(types.ErrInvalidNetNS, hint, "configure the pod's interface: %v", err)
}
