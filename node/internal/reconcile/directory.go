package reconcile

import (
	"context"
	"fmt"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/store"
)

const (
	// directoryPause limits how often changes of the tenant directory are programmed.
	directoryPause = 20 * time.Millisecond
	tenantBound    = 2 * time.Second
	// everyRailBound is how long an ADD waits for the node's other rails to know its addresses.
	everyRailBound = time.Second
)

// signal wakes a loop. Concurrent signals are merged.
type signal chan struct{}

func (s signal) notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// followDirectory programs what changes in the directory.
func (r *Reconciler) followDirectory(ctx context.Context) {
	for {
		// Taken before the rails look, so that a later change causes another round.
		changed := r.directory.Changed()
		r.moveTenants(ctx)
		for _, rail := range r.rails {
			rail.hear()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if !pause.For(ctx, directoryPause) {
			return
		}
	}
}

// hear makes the rail program what changed in the directory.
func (r *rail) hear() { r.wakeUp() }

// catchUp programs the members that changed. It returns false if that needs a pass.
func (r *rail) catchUp(ctx context.Context) bool {
	if r.last == nil || r.view == 0 {
		return false
	}
	change := r.reconciler.directory.Since(r.view)
	if change.Redrawn || change.Whole || change.IsLarge() {
		return false
	}
	if err := r.change(ctx, nil, nil, change); err != nil {
		r.last, r.view = nil, 0
		return false
	}
	r.mutex.Lock()
	r.result.flows += flowsPerMember * (len(change.Added) - len(change.Removed))
	r.mutex.Unlock()
	r.setView(change.Version)
	return true
}

// setView records the view that the flows implement.
func (r *rail) setView(version uint64) {
	r.view = version
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.implemented = version
	close(r.advanced)
	r.advanced = make(chan struct{})
}

// awaitView waits until the rail's flows implement a view.
func (r *rail) awaitView(ctx context.Context, version uint64) error {
	for {
		r.mutex.Lock()
		done, advanced := r.implemented >= version, r.advanced
		r.mutex.Unlock()
		if done {
			return nil
		}
		r.hear()
		select {
		case <-ctx.Done():
			return fmt.Errorf("rail %s was not programmed in time: %w", r.Name, ctx.Err())
		case <-advanced:
		}
	}
}

// awaitRails waits until all rails with pods know a new attachment's addresses, and the datapaths forward by their flows.
// Problems of other rails must not fail the ADD.
func (r *Reconciler) awaitRails(ctx context.Context, record store.Record) {
	ctx, cancel := context.WithTimeout(ctx, everyRailBound)
	defer cancel()
	version := r.directory.Version()
	for _, rail := range r.rails {
		last := rail.lastPass().outcome
		if rail.Name != record.Rail && (last == nil || last.flows != nil || len(rail.records()) == 0) {
			continue
		}
		if err := rail.awaitView(ctx, version); err != nil {
			r.logFor(record).Warn("other pods may reach it a moment later", "error", err)
		}
	}
	if err := r.openVSwitch.Settle(ctx, 1); err != nil {
		r.logFor(record).Warn("first packets may be lost", "error", err)
	}
}

func (r *Reconciler) tenantOf(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tenantBound)
	defer cancel()
	return r.directory.TenantOf(ctx, namespace)
}
