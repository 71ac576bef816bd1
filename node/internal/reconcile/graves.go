package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
	"railwright/node/internal/durable/watch"
	"railwright/node/internal/tombstone"
)

const (
	tombstonesEvery = 10 * time.Second
	// abandonedAfter: a plugin that was killed, or lost its power, while it wrote a tombstone does not come back to it.
	abandonedAfter = 10 * time.Second
)

// followTombstones replays the DELs that plugins left while we were away, now and whenever another one comes.
func (r *Reconciler) followTombstones(ctx context.Context) {
	// Plugins make it too; a folder that is not there cannot be watched.
	if err := os.MkdirAll(r.tombstones, 0o700); err != nil {
		r.log.Warn("the folder of tombstones cannot be made", "error", err)
	}
	watch.Folders(ctx, []string{r.tombstones}, tombstonesEvery, func() { r.replayAll(ctx) })
}

func (r *Reconciler) replayAll(ctx context.Context) {
	if err := durable.RemoveAbandoned(r.tombstones, abandonedAfter); err != nil {
		r.log.Warn("what is left of a tombstone cannot be removed", "error", err)
	}
	paths, err := tombstone.List(r.tombstones)
	if err != nil {
		r.log.Warn("tombstones cannot be listed", "error", err)
		return
	}
	for _, path := range paths {
		stone, ok := r.readTombstone(path)
		if !ok {
			continue
		}
		unlock, err := r.locks.lock(ctx, stone.Key)
		if err != nil {
			return
		}
		r.replay(ctx, path, stone)
		unlock()
	}
}

// replayOf a key, which the caller has locked, before an ADD of it: the DEL came first.
func (r *Reconciler) replayOf(ctx context.Context, key attachment.Key) {
	paths, err := tombstone.List(r.tombstones)
	if err != nil {
		return // replayAll tells it
	}
	for _, path := range paths {
		if stone, ok := r.readTombstone(path); ok && stone.Key == key {
			r.replay(ctx, path, stone)
		}
	}
}

// replay one tombstone with its key locked. One that is older than the attachment is of another one, which had the key
// before: a DEL that ran out of time leaves one, though it was served.
func (r *Reconciler) replay(ctx context.Context, path string, stone tombstone.Tombstone) {
	record, found := r.store.Get(stone.Key)
	outcome := "nothing-there"
	if found {
		outcome = "too-old"
		if !stone.Written.Before(record.Added) {
			outcome = "replayed"
			if err := r.detach(ctx, stone.Key, stone.Parts); err != nil {
				return
			}
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("a tombstone cannot be removed", "path", path, "error", err)
		return
	}
	r.metrics.Tombstone(outcome)
	r.log.Info("a DEL from while the daemon was away", "outcome", outcome, "network", stone.Key.Network,
		"container", stone.Key.ContainerID, "interface", stone.Key.Interface)
}

// readTombstone moves away what cannot be read, so that it is told once and not lost.
func (r *Reconciler) readTombstone(path string) (tombstone.Tombstone, bool) {
	stone, err := tombstone.Read(path)
	if err == nil {
		return stone, true
	}
	if errors.Is(err, fs.ErrNotExist) {
		return tombstone.Tombstone{}, false
	}
	moved := filepath.Join(filepath.Dir(path), ".damaged-"+filepath.Base(path))
	r.log.Error("a tombstone cannot be read and is moved away", "to", moved,
		"error", errors.Join(err, os.Rename(path, moved)))
	r.metrics.Tombstone("damaged")
	return tombstone.Tombstone{}, false
}
