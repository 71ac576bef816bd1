package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// directoryPause bounds how often changes of the tenant directory bring passes.
	directoryPause = 20 * time.Millisecond
	confirmBound   = 3 * time.Second
	tenantBound    = 2 * time.Second
)

// signal wakes one loop; signals that come together are one.
type signal chan struct{}

func (signal signal) again() {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// followDirectory plans anew whenever the directory or the tenants that have pods here have changed.
func (reconciler *Reconciler) followDirectory(ctx context.Context) {
	for {
		// The channel is taken before the rails look: a change after this brings another round.
		_, _, changed := reconciler.directory.View(reconciler.localTenants())
		reconciler.moveTenants(ctx)
		for _, rail := range reconciler.rails {
			rail.kick(due{})
		}
		reconciler.confirm.wake.again()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-reconciler.watch:
		}
		if !pause(ctx, directoryPause) {
			return
		}
	}
}

// confirmer tells the directory which of its views the flows of this node show.
type confirmer struct {
	wake signal

	mutex sync.Mutex
	// views by rail: the version of the last one that the rail's flows were made of.
	views map[string]uint64
}

func newConfirmer() *confirmer {
	return &confirmer{wake: make(signal, 1), views: map[string]uint64{}}
}

func (confirmer *confirmer) applied(rail string, version uint64) {
	confirmer.mutex.Lock()
	changed := confirmer.views[rail] != version
	confirmer.views[rail] = version
	confirmer.mutex.Unlock()
	if changed {
		confirmer.wake.again()
	}
}

func (confirmer *confirmer) of(rail string) uint64 {
	confirmer.mutex.Lock()
	defer confirmer.mutex.Unlock()
	return confirmer.views[rail]
}

// confirmViews until ctx ends. A rail without attachments lets nothing in: it holds nobody up, also where it is broken.
func (reconciler *Reconciler) confirmViews(ctx context.Context) {
	var confirmed uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-reconciler.confirm.wake:
		}
		_, version, _ := reconciler.directory.View(reconciler.localTenants())
		for name, rail := range reconciler.rails {
			if len(rail.records()) > 0 {
				version = min(version, reconciler.confirm.of(name))
			}
		}
		if version <= confirmed {
			continue
		}
		bound, end := context.WithTimeout(ctx, confirmBound)
		err := reconciler.directory.Confirm(bound, version)
		end()
		if err != nil {
			reconciler.log.Warn("the flows in place could not be confirmed to the other nodes", "error", err)
			if !pause(ctx, time.Second) {
				return
			}
			reconciler.confirm.wake.again()
			continue
		}
		confirmed = version
	}
}

// localTenants have pods here; sorted.
func (reconciler *Reconciler) localTenants() []string {
	var local []string
	for _, record := range reconciler.store.All() {
		if !record.Leaving() && reconciler.claims.holds(record.Key) {
			local = append(local, record.Tenant)
		}
	}
	slices.Sort(local)
	return slices.Compact(local)
}

func (reconciler *Reconciler) tenantOf(ctx context.Context, namespace string) (string, error) {
	bound, end := context.WithTimeout(ctx, tenantBound)
	defer end()
	return reconciler.directory.TenantOf(bound, namespace)
}

// pause for a while; false where ctx has ended.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
