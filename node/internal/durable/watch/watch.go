// Package watch looks at folders again whenever something in them changes.
package watch

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Folders calls look at once, whenever something in one of the folders changes, and every now and then all the same: a
// folder of another machine says nothing by itself, and one may be missing or mounted only later.
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
				_ = watcher.Add(folder) // again and again: the same is fine, one that came anew is needed
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

// settle takes in what comes within a moment: one look for all.
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
