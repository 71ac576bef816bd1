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
	// abandonedAfter is the age at which a partial tombstone counts as abandoned by a plugin that was killed.
	abandonedAfter = 10 * time.Second
)

// followTombstones replays the DELs that plugins left while the daemon was down, now and whenever another appears.
func (r *Reconciler) followTombstones(ctx context.Context) {
	// Plugins create the folder too, but a missing folder cannot be watched.
	if err := os.MkdirAll(r.tombstones, 0o700); err != nil {
		r.log.Warn("cannot create the tombstone folder", "error", err)
	}
	watch.Folders(ctx, []string{r.tombstones}, tombstonesEvery, func() { r.replayAll(ctx) })
}

func (r *Reconciler) replayAll(ctx context.Context) {
	if err := durable.RemoveAbandoned(r.tombstones, abandonedAfter); err != nil {
		r.log.Warn("cannot remove a partial tombstone", "error", err)
	}
	paths, err := tombstone.List(r.tombstones)
	if err != nil {
		r.log.Warn("cannot list tombstones", "error", err)
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

// replayOf replays the tombstones of a key that the caller has locked, before an ADD: the DEL came first.
func (r *Reconciler) replayOf(ctx context.Context, key attachment.Key) {
	paths, err := tombstone.List(r.tombstones)
	if err != nil {
		return // replayAll logs it
	}
	for _, path := range paths {
		if stone, ok := r.readTombstone(path); ok && stone.Key == key {
			r.replay(ctx, path, stone)
		}
	}
}

// replay executes a tombstone with its key locked. A tombstone older than the attachment belongs to an earlier
// attachment with the key: a DEL that timed out leaves one even if it was executed.
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
		r.log.Warn("cannot remove a tombstone", "path", path, "error", err)
		return
	}
	r.metrics.Tombstone(outcome)
	r.log.Info("DEL from while the daemon was down", "outcome", outcome, "network", stone.Key.Network,
		"container", stone.Key.ContainerID, "interface", stone.Key.Interface)
}

// readTombstone moves an unreadable file away, so that it is logged once and not lost.
func (r *Reconciler) readTombstone(path string) (tombstone.Tombstone, bool) {
	stone, err := tombstone.Read(path)
	if err == nil {
		return stone, true
	}
	if errors.Is(err, fs.ErrNotExist) {
		return tombstone.Tombstone{}, false
	}
	moved := filepath.Join(filepath.Dir(path), ".damaged-"+filepath.Base(path))
	r.log.Error("moved an unreadable tombstone away", "to", moved,
		"error", errors.Join(err, os.Rename(path, moved)))
	r.metrics.Tombstone("damaged")
	return tombstone.Tombstone{}, false
}
