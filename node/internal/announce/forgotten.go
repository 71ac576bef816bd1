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

	"railwright/node/internal/pause"
)

// bgpd can keep announcing a withdrawn route forever. Two such cases were observed: a route that is deleted from the
// kernel's table while zebra restarts and bgpd does not (after a restart zebra of FRR 10.3 reports the existing routes
// to bgpd, but not the deleted ones), and a network line that is removed within the first second of a session (FRR
// 8.4). Such a route would attract packets to a node that no longer has the pod. The daemon therefore continuously
// compares the prefixes that bgpd sends with those that exist, and announces and withdraws a stale prefix again.

// reannouncePause separates the announcement of a prefix from its withdrawal: bgpd must process the first before the
// second.
const reannouncePause = 300 * time.Millisecond

// backend is a backend that can announce and withdraw a prefix again.
type backend interface {
	// gone reports whether the last Sync of the rail left the prefix out. It is false before the first Sync.
	gone(rail string, prefix netip.Prefix) bool
	// reannounce announces and withdraws prefixes again and returns their number. It skips wanted prefixes and those of
	// other programs. If it is interrupted, the next Sync removes the rest.
	reannounce(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error)
}

// staleRoutes finds prefixes that bgpd still sends after their withdrawal.
type staleRoutes struct {
	reader   *reader
	backend  backend
	suspects map[netip.Prefix]suspect
}

// suspect is a prefix to withdraw again. The pause between attempts grows, because the prefix may be the operator's
// own.
type suspect struct {
	next  time.Time
	pause time.Duration
}

const (
	// staleAfter is far above the time that bgpd takes for a withdrawal (50 ms).
	staleAfter = time.Second
	stalePause = time.Minute
)

func (f *staleRoutes) look(ctx context.Context) string {
	before, logged := f.suspects, ""
	f.suspects = map[netip.Prefix]suspect{}
	for _, rail := range f.reader.settings.Rails {
		extra, err := f.extra(ctx, rail)
		if err != nil {
			// bgpd does not reply; the next look reports it.
			return logged
		}
		var sure []netip.Prefix
		for _, prefix := range extra {
			known, seen := before[prefix]
			if !seen {
				known = suspect{time.Now().Add(staleAfter), staleAfter}
			} else if !time.Now().Before(known.next) {
				sure = append(sure, prefix)
				known.pause = min(2*known.pause, stalePause)
				known.next = time.Now().Add(known.pause)
			}
			f.suspects[prefix] = known
		}
		if len(sure) == 0 {
			continue
		}
		if count, err := f.backend.reannounce(ctx, rail, sure); err != nil || count > 0 {
			logged = fmt.Sprintf("bgpd still announced withdrawn %s on rail %s: withdrew it again", summarize(sure), rail.Name)
			if err != nil {
				logged += ", but that failed: " + err.Error()
			}
		}
	}
	return logged
}

// extra returns the withdrawn prefixes of the rail's pods that bgpd sends, sorted.
func (f *staleRoutes) extra(ctx context.Context, rail RailSettings) ([]netip.Prefix, error) {
	var extra []netip.Prefix
	for _, family := range families {
		sent, _, _, err := f.reader.look(ctx, rail, family)
		if err != nil {
			return nil, err
		}
		for prefix := range sent {
			if rail.allows(prefix) == nil && f.backend.gone(rail.Name, prefix) {
				extra = append(extra, prefix)
			}
		}
	}
	slices.SortFunc(extra, netip.Prefix.Compare)
	return extra, nil
}

func (k *KernelTable) gone(rail string, prefix netip.Prefix) bool {
	table := k.rails[rail]
	table.mutex.Lock()
	defer table.mutex.Unlock()
	return table.left != nil && !table.left[prefix]
}

func (k *KernelTable) reannounce(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error) {
	table := k.rails[rail.Name]
	table.mutex.Lock()
	defer table.mutex.Unlock()
	var wrong []error
	var added []*netlink.Route
	for _, prefix := range prefixes {
		if table.left[prefix] {
			continue
		}
		route := blackhole(table.Table, prefix)
		// A route that already exists was added by another program and stays.
		if err := k.handle.RouteAdd(route); err == nil {
			added = append(added, route)
		} else if !errors.Is(err, syscall.EEXIST) {
			wrong = append(wrong, err)
		}
	}
	if len(added) > 0 {
		pause.For(ctx, reannouncePause)
	}
	for _, route := range added {
		if err := k.handle.RouteDel(route); err != nil {
			wrong = append(wrong, err)
		}
	}
	return len(added), joinFirst(wrong)
}

func (v *Vty) gone(rail string, prefix netip.Prefix) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	left, synced := v.left[rail]
	return synced && !left[prefix]
}

func (v *Vty) reannounce(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	talk, err := v.bgpd.open(ctx)
	if err != nil {
		return 0, err
	}
	defer talk.close()
	lines, err := v.lines(talk)
	if err != nil {
		return 0, err
	}
	again, end := newEdit(), newEdit()
	for _, prefix := range prefixes {
		if !lines.ours[rail.Name][prefix] && lines.theirs[prefix] == "" {
			again.plan(rail, prefix, true)
			end.plan(rail, prefix, false)
		}
	}
	if len(again.changes) == 0 {
		return 0, nil
	}
	there := lines.ours[rail.Name]
	if err := again.apply(talk, lines.instance, there); err != nil {
		return 0, err
	}
	pause.For(ctx, reannouncePause)
	err = end.apply(talk, lines.instance, there)
	return again.added, joinFirst(append(append(again.wrong, end.wrong...), err))
}
