package announce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// A route that is deleted while zebra is away, and bgpd is not, stays announced for ever: zebra tells bgpd what is there
// when it comes back, not what is gone (measured with FRR 10.3; FRR's own watchdog starts both anew). The address would
// draw packets to a node that no longer has the pod. So what bgpd sends is compared with the tables all the time, and
// zebra is told of such a route and of its end once more.

// tellPause between the route and its end: zebra must have handed it on, or it forgets both.
const tellPause = 300 * time.Millisecond

// forgotten is the drift of KernelTable: what is sent though its route is gone.
type forgotten struct {
	kernel   *KernelTable
	suspects map[netip.Prefix]suspect
}

// suspect is told of again at a time, and later and later where that does not help: it may be the operator's own.
type suspect struct {
	next  time.Time
	pause time.Duration
}

const (
	// forgottenAfter is far above what bgpd takes for a withdrawal (50 ms).
	forgottenAfter = time.Second
	forgottenPause = time.Minute
)

func (forgotten *forgotten) look(ctx context.Context) string {
	before, told := forgotten.suspects, ""
	forgotten.suspects = map[netip.Prefix]suspect{}
	for _, given := range forgotten.kernel.settings.Rails {
		table := forgotten.kernel.rails[given.Name]
		extra, err := forgotten.kernel.extra(ctx, table)
		if err != nil {
			// bgpd does not answer: the next look says so.
			return told
		}
		var sure []netip.Prefix
		for _, prefix := range extra {
			known, seen := before[prefix]
			if !seen {
				known = suspect{time.Now().Add(forgottenAfter), forgottenAfter}
			} else if !time.Now().Before(known.next) {
				sure = append(sure, prefix)
				known.pause = min(2*known.pause, forgottenPause)
				known.next = time.Now().Add(known.pause)
			}
			forgotten.suspects[prefix] = known
		}
		if len(sure) == 0 {
			continue
		}
		if count, err := forgotten.kernel.tellAgain(ctx, table, sure); err != nil || count > 0 {
			told = fmt.Sprintf("bgpd still announced %s on rail %s though the route is gone: told it again", some(sure), given.Name)
			if err != nil {
				told += ", in vain: " + err.Error()
			}
		}
	}
	return told
}

// extra prefixes of the rail's pods that bgpd sends and the last Sync did not leave in the table, sorted.
func (kernel *KernelTable) extra(ctx context.Context, table *railTable) ([]netip.Prefix, error) {
	var extra []netip.Prefix
	for _, family := range families {
		sent, _, err := kernel.look(ctx, table.RailSettings, family)
		if err != nil {
			return nil, err
		}
		for prefix := range sent {
			if table.allows(prefix) == nil && table.gone(prefix) {
				extra = append(extra, prefix)
			}
		}
	}
	slices.SortFunc(extra, netip.Prefix.Compare)
	return extra, nil
}

// gone says whether we know that we have no such route.
func (table *railTable) gone(prefix netip.Prefix) bool {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	return table.left != nil && !table.left[prefix]
}

// tellAgain of routes and of their end, and say of how many. Whatever interrupts it, the next Sync deletes what is left.
func (kernel *KernelTable) tellAgain(ctx context.Context, table *railTable, prefixes []netip.Prefix) (int, error) {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	var wrong []error
	var added []*netlink.Route
	for _, prefix := range prefixes {
		route := blackhole(table.Table, prefix)
		if table.left[prefix] {
			continue
		}
		// One that a stranger has put there is announced with good reason.
		if err := kernel.handle.RouteAdd(route); err == nil {
			added = append(added, route)
		} else if !errors.Is(err, syscall.EEXIST) {
			wrong = append(wrong, err)
		}
	}
	if len(added) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(tellPause):
		}
	}
	for _, route := range added {
		if err := kernel.handle.RouteDel(route); err != nil {
			wrong = append(wrong, err)
		}
	}
	return len(added), few(wrong)
}
