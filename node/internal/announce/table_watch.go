package announce

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Events reports that bgpd started or stopped, changes of sessions, and routes of ours that another program added or
// deleted.
func (k *KernelTable) Events(ctx context.Context) <-chan Event {
	forgotten := &staleRoutes{reader: k.reader, backend: k}
	return watch(ctx, k.watchFRR(forgotten.look), k.watchTables)
}

const (
	// routeBuffer is the size of the notification socket's buffer: a node whose FRR learns many routes receives
	// notifications of all of them.
	routeBuffer = 4 << 20
	// subscribePause is the pause between attempts to subscribe.
	subscribePause = 500 * time.Millisecond
)

func (k *KernelTable) watchTables(ctx context.Context, events events) {
	var logged string
	for ctx.Err() == nil {
		if err := k.follow(ctx, events); err != nil && err.Error() != logged {
			logged = err.Error()
			events.emit("follow changes of the kernel's routes: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(subscribePause):
		}
	}
}

// follow reads notifications until ctx ends or the kernel drops some.
func (k *KernelTable) follow(ctx context.Context, events events) error {
	done := make(chan struct{})
	updates := make(chan netlink.RouteUpdate, 256)
	err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{
		Namespace: k.namespace, ReceiveBufferSize: routeBuffer, ReceiveBufferForceSize: true,
		// The closed channel already reports the error.
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
	// Changes before the subscription are unknown.
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
			if table := k.changedTable(update); table != nil {
				k.compare(table, events)
			}
		}
	}
}

// changedTable returns the table that an update changed, or nil if our last Sync asked for the change.
func (k *KernelTable) changedTable(update netlink.RouteUpdate) *railTable {
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

// compare compares the table with the last Sync, because a notification may be older.
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
	return describeChange(table.left, now, fmt.Sprintf("table %d of rail %s", table.Table, table.Name))
}

// describeChange describes the first difference between left and now, or returns "".
func describeChange(left, now map[netip.Prefix]bool, where string) string {
	for prefix := range now {
		if !left[prefix] {
			return fmt.Sprintf("another program added %s to %s", prefix, where)
		}
	}
	for prefix := range left {
		if !now[prefix] {
			return fmt.Sprintf("another program deleted %s from %s", prefix, where)
		}
	}
	return ""
}

// Events reports that bgpd started or stopped, changes of sessions, and network lines of ours that another program
// added or deleted.
func (v *Vty) Events(ctx context.Context) <-chan Event {
	forgotten := &staleRoutes{reader: v.reader, backend: v}
	return watch(ctx, v.watchFRR(func(ctx context.Context) string {
		if reason := v.findDrift(ctx); reason != "" {
			return reason
		}
		return forgotten.look(ctx)
	}))
}

func (v *Vty) findDrift(ctx context.Context) string {
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
		if reason := describeChange(left, lines.ours[name], "bgpd's networks of rail "+name); reason != "" {
			return reason
		}
	}
	return ""
}
