package announce

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Events tells of bgpd's coming and going, of sessions, and of routes of ours that somebody else added or deleted.
func (k *KernelTable) Events(ctx context.Context) <-chan Event {
	forgotten := &forgotten{reader: k.reader, teller: k}
	return watch(ctx, k.watchFRR(forgotten.look), k.watchTables)
}

const (
	// routeBuffer of the socket that notifications come by: a node whose FRR learns many routes gets all of theirs too.
	routeBuffer = 4 << 20
	// subscribePause between attempts.
	subscribePause = 500 * time.Millisecond
)

func (k *KernelTable) watchTables(ctx context.Context, events events) {
	var logged string
	for ctx.Err() == nil {
		if err := k.follow(ctx, events); err != nil && err.Error() != logged {
			logged = err.Error()
			events.emit("changes of the kernel's routes cannot be followed: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(subscribePause):
		}
	}
}

// follow notifications until ctx ends or the kernel drops some.
func (k *KernelTable) follow(ctx context.Context, events events) error {
	done := make(chan struct{})
	updates := make(chan netlink.RouteUpdate, 256)
	err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{
		Namespace: k.namespace, ReceiveBufferSize: routeBuffer, ReceiveBufferForceSize: true,
		// The channel's end says enough.
		ErrorCallback: func(error) {},
	})
	if err != nil {
		return err
	}
	defer func() {
		close(done)
		for range updates {
			continue
		}
	}()
	// What happened while nobody listened is not known.
	for _, table := range k.rails {
		k.compare(table, events)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case update, open := <-updates:
			if !open {
				return nil
			}
			if table := k.concerned(update); table != nil {
				k.compare(table, events)
			}
		}
	}
}

// concerned is the table where an update is not what our own last Sync asked for.
func (k *KernelTable) concerned(update netlink.RouteUpdate) *railTable {
	if update.Protocol != Protocol {
		return nil
	}
	for _, table := range k.rails {
		if table.Table != update.Table {
			continue
		}
		table.mutex.Lock()
		defer table.mutex.Unlock()
		if table.left != nil && table.left[prefixOf(update.Route)] != (update.Type == unix.RTM_NEWROUTE) {
			return table
		}
	}
	return nil
}

// compare the table with the last Sync: a notification may be older than that.
func (k *KernelTable) compare(table *railTable, events events) {
	if reason := k.difference(table); reason != "" {
		events.emit("%s", reason)
	}
}

func (k *KernelTable) difference(table *railTable) string {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	if table.left == nil {
		return ""
	}
	there, err := k.routes(table.Table)
	if err != nil {
		return err.Error()
	}
	now := map[netip.Prefix]bool{}
	for _, route := range there {
		now[prefixOf(route)] = true
	}
	return changed(table.left, now, fmt.Sprintf("table %d of rail %s", table.Table, table.Name))
}

// changed says what is not as it was left, in one sentence; empty: nothing.
func changed(left, now map[netip.Prefix]bool, where string) string {
	for prefix := range now {
		if !left[prefix] {
			return fmt.Sprintf("somebody added %s to %s", prefix, where)
		}
	}
	for prefix := range left {
		if !now[prefix] {
			return fmt.Sprintf("somebody deleted %s from %s", prefix, where)
		}
	}
	return ""
}

// Events tells of bgpd's coming and going, of sessions, and of network lines of ours that somebody else added or deleted.
func (v *Vty) Events(ctx context.Context) <-chan Event {
	forgotten := &forgotten{reader: v.reader, teller: v}
	return watch(ctx, v.watchFRR(func(ctx context.Context) string {
		if reason := v.drifted(ctx); reason != "" {
			return reason
		}
		return forgotten.look(ctx)
	}))
}

func (v *Vty) drifted(ctx context.Context) string {
	talk, err := v.bgpd.open(ctx)
	if err != nil {
		return ""
	}
	defer talk.close()
	v.mutex.Lock()
	defer v.mutex.Unlock()
	lines, err := v.lines(talk)
	if err != nil {
		return ""
	}
	for name, left := range v.left {
		if reason := changed(left, lines.ours[name], "bgpd's networks of rail "+name); reason != "" {
			return reason
		}
	}
	return ""
}
