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

// bgpd may go on announcing what was withdrawn, for ever. Two such cases were measured: a route of the kernel's table that
// is deleted while zebra is away and bgpd is not (FRR 10.3: zebra tells bgpd what is there when it comes back, not what is
// gone), and a network line that is taken back within the first second of a session (FRR 8.4). The address would draw
// packets to a node that no longer has the pod. So what bgpd sends is compared with what there is all the time, and bgpd is
// told of such a prefix and of its end once more.

// tellPause between a prefix and its end: they must have been handed on, or both are forgotten.
const tellPause = 300 * time.Millisecond

// teller is a backend's part in that.
type teller interface {
	// gone says whether the last Sync of the rail left no such prefix; false where there was none.
	gone(rail string, prefix netip.Prefix) bool
	// tellAgain of prefixes and of their end, and say of how many; strangers' and wanted ones are left out. Whatever
	// interrupts it, the next Sync removes what is left.
	tellAgain(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error)
}

// forgotten finds what is sent though it is gone.
type forgotten struct {
	reader   *reader
	teller   teller
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

func (f *forgotten) look(ctx context.Context) string {
	before, logged := f.suspects, ""
	f.suspects = map[netip.Prefix]suspect{}
	for _, rail := range f.reader.settings.Rails {
		extra, err := f.extra(ctx, rail)
		if err != nil {
			// bgpd does not answer: the next look says so.
			return logged
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
			f.suspects[prefix] = known
		}
		if len(sure) == 0 {
			continue
		}
		if count, err := f.teller.tellAgain(ctx, rail, sure); err != nil || count > 0 {
			logged = fmt.Sprintf("bgpd still announced %s on rail %s though it was withdrawn: told it again", some(sure), rail.Name)
			if err != nil {
				logged += ", in vain: " + err.Error()
			}
		}
	}
	return logged
}

// extra prefixes of the rail's pods that bgpd sends, sorted.
func (f *forgotten) extra(ctx context.Context, rail RailSettings) ([]netip.Prefix, error) {
	var extra []netip.Prefix
	for _, family := range families {
		sent, _, err := f.reader.look(ctx, rail, family)
		if err != nil {
			return nil, err
		}
		for prefix := range sent {
			if rail.allows(prefix) == nil && f.teller.gone(rail.Name, prefix) {
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

func (k *KernelTable) tellAgain(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error) {
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
		// One that a stranger has put there is announced with good reason.
		if err := k.handle.RouteAdd(route); err == nil {
			added = append(added, route)
		} else if !errors.Is(err, syscall.EEXIST) {
			wrong = append(wrong, err)
		}
	}
	if len(added) > 0 {
		pause(ctx, tellPause)
	}
	for _, route := range added {
		if err := k.handle.RouteDel(route); err != nil {
			wrong = append(wrong, err)
		}
	}
	return len(added), few(wrong)
}

func (v *Vty) gone(rail string, prefix netip.Prefix) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	left, synced := v.left[rail]
	return synced && !left[prefix]
}

func (v *Vty) tellAgain(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (int, error) {
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
	pause(ctx, tellPause)
	err = end.apply(talk, lines.instance, there)
	return again.added, few(append(append(again.wrong, end.wrong...), err))
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}
