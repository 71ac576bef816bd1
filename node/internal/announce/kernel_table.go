package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"railwright/node/internal/plan"
)

// Protocol marks our routes in the kernel's tables. No routing daemon in /etc/iproute2/rt_protos uses it.
const Protocol netlink.RouteProtocol = 114

// KernelTable announces through a kernel table for each rail: a blackhole route for each address, which FRR 10 imports
// by its static `redistribute table-direct`. No rule looks up the tables, so the routes carry no packet. The routes
// outlive this process and FRR; routes with another protocol number are never touched.
type KernelTable struct {
	*reader
	handle *netlink.Handle
	// namespace is the network namespace of the routes; nil means the process's own.
	namespace *netns.NsHandle
	rails     map[string]*railTable
}

// railTable is the table of a rail. left holds the prefixes that the last Sync left there; it is nil before the first
// Sync.
type railTable struct {
	RailSettings
	mutex sync.Mutex
	left  map[netip.Prefix]bool
}

// NewKernelTable checks the settings. The caller must call Close.
func NewKernelTable(settings Settings) (*KernelTable, error) {
	return newKernelTable(settings, nil)
}

func newKernelTable(settings Settings, namespace *netns.NsHandle) (*KernelTable, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	rails, tables := map[string]*railTable{}, map[int]string{}
	for _, rail := range settings.Rails {
		if err := rail.checkTable(); err != nil {
			return nil, err
		}
		if other, taken := tables[rail.Table]; taken {
			return nil, fmt.Errorf("rails %s and %s must have different tables, both have %d", other, rail.Name, rail.Table)
		}
		tables[rail.Table] = rail.Name
		rails[rail.Name] = &railTable{RailSettings: rail}
	}
	var handle *netlink.Handle
	var err error
	if namespace == nil {
		handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	} else {
		handle, err = netlink.NewHandleAt(*namespace, unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(exchangeLimit); err != nil {
		handle.Close()
		return nil, fmt.Errorf("set netlink timeout: %w", err)
	}
	source := func(rail RailSettings) string { return fmt.Sprintf("redistributes table-direct %d", rail.Table) }
	return &KernelTable{newReader(settings, source), handle, namespace, rails}, nil
}

// Close closes the netlink socket. The routes stay.
func (k *KernelTable) Close() error {
	k.handle.Close()
	return nil
}

// Sync makes want the rail's routes. It skips prefixes that must not be announced and names them in the error; above
// the cap it adds nothing.
func (k *KernelTable) Sync(ctx context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error) {
	table, err := k.table(rail)
	if err != nil {
		return 0, 0, err
	}
	good, refused := table.allowedPrefixes(want)
	table.mutex.Lock()
	defer table.mutex.Unlock()
	there, err := k.routes(table.Table)
	if err != nil {
		return 0, 0, errors.Join(refused, err)
	}
	table.left = map[netip.Prefix]bool{}
	for _, route := range there {
		table.left[prefixOf(route)] = true
	}
	removed, wrong := k.remove(ctx, table, there, good)
	if !errors.Is(refused, ErrTooMany) {
		var more []error
		added, more = k.add(ctx, table, good)
		wrong = append(wrong, more...)
	}
	return added, removed, joinFirst(append([]error{refused}, wrong...))
}

// remove deletes our routes that are not wanted or are not blackholes.
func (k *KernelTable) remove(ctx context.Context, table *railTable, there []netlink.Route, want []netip.Prefix) (int, []error) {
	removed, wrong := 0, []error(nil)
	for _, route := range there {
		prefix := prefixOf(route)
		_, found := slices.BinarySearchFunc(want, prefix, netip.Prefix.Compare)
		if found && route.Type == unix.RTN_BLACKHOLE {
			continue
		}
		if ctx.Err() != nil {
			return removed, append(wrong, ctx.Err())
		}
		if err := k.handle.RouteDel(&route); err != nil && !errors.Is(err, syscall.ESRCH) {
			wrong = append(wrong, fmt.Errorf("delete route %s from table %d: %w", prefix, table.Table, err))
			continue
		}
		delete(table.left, prefix)
		removed++
	}
	return removed, wrong
}

// add adds the wanted routes that are missing.
func (k *KernelTable) add(ctx context.Context, table *railTable, want []netip.Prefix) (int, []error) {
	added, wrong := 0, []error(nil)
	for _, prefix := range want {
		if table.left[prefix] {
			continue
		}
		if ctx.Err() != nil {
			return added, append(wrong, ctx.Err())
		}
		switch err := k.handle.RouteAdd(blackhole(table.Table, prefix)); {
		case errors.Is(err, syscall.EEXIST):
			wrong = append(wrong,
				fmt.Errorf("table %d already has a route %s of another program; delete it (ip route show table %d) or use another table",
					table.Table, prefix, table.Table))
		case err != nil:
			wrong = append(wrong, fmt.Errorf("add route %s to table %d: %w", prefix, table.Table, err))
		default:
			table.left[prefix] = true
			added++
		}
	}
	return added, wrong
}

// List returns the rail's prefixes in the kernel's table, sorted.
func (k *KernelTable) List(_ context.Context, rail plan.Rail) ([]netip.Prefix, error) {
	table, err := k.table(rail)
	if err != nil {
		return nil, err
	}
	table.mutex.Lock()
	defer table.mutex.Unlock()
	there, err := k.routes(table.Table)
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, route := range there {
		prefixes = append(prefixes, prefixOf(route))
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes), nil
}

func (k *KernelTable) table(rail plan.Rail) (*railTable, error) {
	table := k.rails[rail.Name]
	if table == nil {
		return nil, fmt.Errorf("no rail %.40q is configured", rail.Name)
	}
	return table, nil
}

// routes returns our routes in a table.
func (k *KernelTable) routes(table int) ([]netlink.Route, error) {
	var all []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		filter := &netlink.Route{Table: table, Protocol: Protocol}
		found, err := k.dump(family, filter)
		if err != nil {
			return nil, fmt.Errorf("list routes of table %d: %w", table, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// dump lists routes, again if a change interrupted the kernel's list, which may then have gaps.
func (k *KernelTable) dump(family int, filter *netlink.Route) ([]netlink.Route, error) {
	const mask = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL
	for until := time.Now().Add(exchangeLimit); ; {
		found, err := k.handle.RouteListFiltered(family, filter, mask)
		if !errors.Is(err, netlink.ErrDumpInterrupted) || time.Now().After(until) {
			return found, err
		}
	}
}

// prefixOf returns a route's prefix, 0.0.0.0/0 or ::/0 for a default route.
func prefixOf(route netlink.Route) netip.Prefix {
	if route.Dst == nil {
		if route.Family == netlink.FAMILY_V6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, length := route.Dst.Mask.Size()
	address, _ := netip.AddrFromSlice(route.Dst.IP)
	if length == 32 {
		address = address.Unmap()
	}
	return netip.PrefixFrom(address, bits)
}

func blackhole(table int, prefix netip.Prefix) *netlink.Route {
	to := &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	return &netlink.Route{Dst: to, Table: table, Protocol: Protocol, Type: unix.RTN_BLACKHOLE}
}
