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

func (s signal) again() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// followDirectory plans anew whenever the directory or the tenants that have pods here have changed.
func (r *Reconciler) followDirectory(ctx context.Context) {
	for {
		// The channel is taken before the rails look: a change after this brings another round.
		_, _, changed := r.directory.View(r.localTenants())
		r.moveTenants(ctx)
		for _, rail := range r.rails {
			rail.kick(due{})
		}
		r.confirm.wake.again()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.watch:
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

func (c *confirmer) applied(rail string, version uint64) {
	c.mutex.Lock()
	changed := c.views[rail] != version
	c.views[rail] = version
	c.mutex.Unlock()
	if changed {
		c.wake.again()
	}
}

func (c *confirmer) of(rail string) uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.views[rail]
}

// confirmViews until ctx ends. A rail without attachments lets nothing in: it holds nobody up, also where it is broken.
func (r *Reconciler) confirmViews(ctx context.Context) {
	var confirmed uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.confirm.wake:
		}
		_, version, _ := r.directory.View(r.localTenants())
		for name, rail := range r.rails {
			if len(rail.records()) > 0 {
				version = min(version, r.confirm.of(name))
			}
		}
		if version <= confirmed {
			continue
		}
		confirmCtx, cancel := context.WithTimeout(ctx, confirmBound)
		err := r.directory.Confirm(confirmCtx, version)
		cancel()
		if err != nil {
			r.log.Warn("the flows in place could not be confirmed to the other nodes", "error", err)
			if !pause(ctx, time.Second) {
				return
			}
			r.confirm.wake.again()
			continue
		}
		confirmed = version
	}
}

// localTenants have pods here; sorted.
func (r *Reconciler) localTenants() []string {
	var local []string
	for _, record := range r.store.All() {
		if !record.Leaving() && r.claims.holds(record.Key) {
			local = append(local, record.Tenant)
		}
	}
	slices.Sort(local)
	return slices.Compact(local)
}

func (r *Reconciler) tenantOf(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tenantBound)
	defer cancel()
	return r.directory.TenantOf(ctx, namespace)
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
