package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"railwright/node/internal/attachment"
)

// host reads the kernel's side of the bridges: their own interfaces with addresses and neighbours.
type host struct {
	handle    *netlink.Handle
	namespace netns.NsHandle
}

const kernelBound = 2 * time.Second

// newHost opens the network namespace at the path; "" means this process's own.
func newHost(path string) (*host, error) {
	namespace := netns.None()
	if path != "" {
		var err error
		namespace, err = netns.GetFromPath(path)
		if err != nil {
			return nil, fmt.Errorf("open network namespace %s: %w", path, err)
		}
	}
	// netns.None selects this process's own namespace.
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(kernelBound); err != nil {
		return nil, fmt.Errorf("set netlink timeout: %w", err)
	}
	return &host{handle: handle, namespace: namespace}, nil
}

func (h *host) close() {
	h.handle.Close()
	if h.namespace.IsOpen() {
		_ = h.namespace.Close()
	}
}

// face is a bridge's own interface.
type face struct {
	index     int
	mac       attachment.MAC
	addresses []netip.Addr
}

func (h *host) face(bridge string) (face, error) {
	link, err := h.handle.LinkByName(bridge)
	if err != nil {
		return face{}, fmt.Errorf("read interface: %w", err)
	}
	mac, err := attachment.ParseMAC(link.Attrs().HardwareAddr.String())
	if err != nil {
		return face{}, fmt.Errorf("read interface: %w", err)
	}
	found, err := retryDump(func() ([]netlink.Addr, error) { return h.handle.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return face{}, fmt.Errorf("list addresses of interface: %w", err)
	}
	local := face{index: link.Attrs().Index, mac: mac}
	for _, assigned := range found {
		if address, ok := netip.AddrFromSlice(assigned.IP); ok {
			local.addresses = append(local.addresses, address.Unmap())
		}
	}
	slices.SortFunc(local.addresses, netip.Addr.Compare)
	return local, nil
}

// up reports whether an interface has a carrier.
func (h *host) up(name string) bool {
	link, err := h.handle.LinkByName(name)
	return err == nil && link.Attrs().OperState == netlink.OperUp
}

// usable holds the neighbour states in which the kernel has a MAC address to send to.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
	netlink.NUD_PERMANENT | netlink.NUD_NOARP

// leaf returns the leaf's MAC address from the neighbours of the bridge's interface. With an address it returns that
// neighbour, and asks the kernel to resolve it if necessary. Without one it returns the router with a link-local
// address, which unnumbered BGP uses.
func (h *host) leaf(bridge string, local face, address netip.Addr) (attachment.MAC, error) {
	neighbours, err := retryDump(func() ([]netlink.Neigh, error) {
		return h.handle.NeighList(local.index, netlink.FAMILY_ALL)
	})
	if err != nil {
		return attachment.MAC{}, fmt.Errorf("list neighbours of %s: %w", bridge, err)
	}
	if !address.IsValid() {
		return router(bridge, neighbours)
	}
	for _, neighbour := range neighbours {
		if found, mac, ok := usableNeighbour(neighbour); ok && found == address.WithZone("") {
			return mac, nil
		}
	}
	h.resolve(local.index, address)
	return attachment.MAC{}, fmt.Errorf("no MAC address of leaf %v on %s; check that it answers "+
		"(ip neigh show dev %s)", address, bridge, bridge)
}

// router returns the only router among the neighbours. Some kernels mark a router only after it answered their
// solicitation, so without any mark all link-local neighbours count.
func router(bridge string, neighbours []netlink.Neigh) (attachment.MAC, error) {
	marked, all := map[attachment.MAC]bool{}, map[attachment.MAC]bool{}
	for _, neighbour := range neighbours {
		address, mac, ok := usableNeighbour(neighbour)
		if !ok || !address.Is6() || !address.IsLinkLocalUnicast() {
			continue
		}
		all[mac] = true
		if neighbour.Flags&netlink.NTF_ROUTER != 0 {
			marked[mac] = true
		}
	}
	if len(marked) > 0 {
		all = marked
	}
	if len(all) == 1 {
		for mac := range all {
			return mac, nil
		}
	}
	if len(all) == 0 {
		return attachment.MAC{}, fmt.Errorf("%s has no router as neighbour yet; check that the leaf sends router advertisements "+
			"and that its BGP session is up", bridge)
	}
	return attachment.MAC{}, fmt.Errorf("%s has %d routers as neighbours; set peer in the configuration to the "+
		"leaf's address", bridge, len(all))
}

func usableNeighbour(neighbour netlink.Neigh) (netip.Addr, attachment.MAC, bool) {
	address, ok := netip.AddrFromSlice(neighbour.IP)
	if !ok || neighbour.State&usable == 0 {
		return netip.Addr{}, attachment.MAC{}, false
	}
	mac, err := attachment.ParseMAC(neighbour.HardwareAddr.String())
	return address.Unmap(), mac, err == nil
}

// resolve asks the kernel to resolve a neighbour, as a packet would. The result arrives as an event.
func (h *host) resolve(index int, address netip.Addr) {
	family := netlink.FAMILY_V4
	if address.Is6() {
		family = netlink.FAMILY_V6
	}
	_ = h.handle.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: family, IP: net.IP(address.AsSlice()), State: netlink.NUD_NONE, Flags: netlink.NTF_USE,
	})
}

// follow calls changed for each kernel event of links, addresses and neighbours, until ctx ends or the kernel drops
// events.
func (h *host) follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	links, linksError := subscribe(func(updates chan<- netlink.LinkUpdate) error {
		options := netlink.LinkSubscribeOptions{Namespace: h.subscribeNamespace(), ErrorCallback: cancel}
		return netlink.LinkSubscribeWithOptions(updates, ctx.Done(), options)
	})
	addresses, addressesError := subscribe(func(updates chan<- netlink.AddrUpdate) error {
		options := netlink.AddrSubscribeOptions{Namespace: h.subscribeNamespace(), ErrorCallback: cancel}
		return netlink.AddrSubscribeWithOptions(updates, ctx.Done(), options)
	})
	neighbours, neighboursError := subscribe(func(updates chan<- netlink.NeighUpdate) error {
		options := netlink.NeighSubscribeOptions{Namespace: h.subscribeNamespace(), ErrorCallback: cancel}
		return netlink.NeighSubscribeWithOptions(updates, ctx.Done(), options)
	})
	// The subscriptions deliver what they have read before they see the end.
	defer func() {
		cancel(nil)
		drain(links)
		drain(addresses)
		drain(neighbours)
	}()
	if err := errors.Join(linksError, addressesError, neighboursError); err != nil {
		return err
	}
	for {
		var open bool
		select {
		case _, open = <-links:
		case _, open = <-addresses:
		case _, open = <-neighbours:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !open {
			return errors.New("kernel closed the netlink socket")
		}
		changed()
	}
}

// subscribeNamespace returns the namespace to subscribe in; nil means this process's own.
func (h *host) subscribeNamespace() *netns.NsHandle {
	if h.namespace.IsOpen() {
		return &h.namespace
	}
	return nil
}

// subscribe returns the channel that the subscription fills and closes, already closed if the subscription failed.
func subscribe[Update any](begin func(updates chan<- Update) error) (<-chan Update, error) {
	updates := make(chan Update)
	if err := begin(updates); err != nil {
		close(updates)
		return updates, err
	}
	return updates, nil
}

func drain[Item any](items <-chan Item) {
	for range items {
	}
}

// followHost follows the kernel until ctx ends and subscribes again after errors.
func (c *Client) followHost(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.host.follow(ctx, c.look)
		if ctx.Err() != nil {
			return
		}
		c.settings.Log.Warn("subscribing to kernel events again", "cause", err)
		c.look()
		_ = wait(ctx, afterPause(longestPause))
	}
}

func afterPause(pause time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(pause, func() { close(over) })
	return over
}
