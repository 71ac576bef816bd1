// Package watch rescans folders when they change.
package watch

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Folders calls look once, whenever a folder changes, and at each interval: a network folder reports no changes, and a
// folder may be missing or mounted later.
func Folders(ctx context.Context, folders []string, interval time.Duration, look func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	watcher, err := fsnotify.NewWatcher()
	var events <-chan fsnotify.Event
	var errors <-chan error
	if err == nil {
		defer watcher.Close()
		events, errors = watcher.Events, watcher.Errors
	}
	for {
		if watcher != nil {
			for _, folder := range folders {
				_ = watcher.Add(folder) // repeated because a recreated folder needs a new watch; for the others it is harmless
			}
		}
		look()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-errors:
		case <-events:
			settle(ctx, events)
		}
	}
}

// settle collects the events of a short moment, so that look runs once for all of them.
func settle(ctx context.Context, events <-chan fsnotify.Event) {
	moment := time.NewTimer(2 * time.Millisecond)
	defer moment.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-moment.C:
			return
		}
	}
}
