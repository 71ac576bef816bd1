package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"railwright/node/internal/plan"
)

const (
	// directoryPause limits how often changes of the tenant directory cause passes.
	directoryPause = 20 * time.Millisecond
	// ownPause is how long a change of this node's own addresses may wait for more before it causes passes over all
	// rails. The rail of the attachment does not wait: its request has a pass of its own.
	ownPause     = 100 * time.Millisecond
	confirmBound = 3 * time.Second
	tenantBound  = 2 * time.Second
)

// signal wakes a loop. Concurrent signals are merged.
type signal chan struct{}

func (s signal) notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// followDirectory requests passes when the directory or the set of tenants with pods here changes.
func (r *Reconciler) followDirectory(ctx context.Context) {
	var known plan.Tenants
	var own map[netip.Addr]bool
	var later <-chan time.Time
	for started := false; ; started = true {
		// Taken before the rails look, so that a later change causes another round.
		view, _, changed := r.directory.View(r.localTenants())
		r.moveTenants(ctx)
		before := own
		own = r.ownAddresses()
		if !started || changedElsewhere(known, view, func(address netip.Addr) bool { return own[address] || before[address] }) {
			r.kickAll()
			later = nil
		} else if later == nil {
			later = time.After(ownPause)
		}
		known = view
		r.confirm.wake.notify()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-later:
				r.kickAll()
				later = nil
			case <-changed:
				waiting = false
			case <-r.watch:
				waiting = false
			}
		}
		if !pause(ctx, directoryPause) {
			return
		}
	}
}

func (r *Reconciler) kickAll() {
	for _, rail := range r.rails {
		rail.kick(due{})
	}
}

// ownAddresses returns the addresses of this node's attachments.
func (r *Reconciler) ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	for _, record := range r.store.All() {
		for _, address := range record.Addresses {
			own[address] = true
		}
	}
	return own
}

// changedElsewhere reports whether two views differ in more than this node's own addresses.
func changedElsewhere(old, view plan.Tenants, own func(netip.Addr) bool) bool {
	if !slices.Equal(old.Pairs, view.Pairs) {
		return true
	}
	foreign := func(members []plan.Member) []plan.Member {
		return slices.DeleteFunc(slices.Clone(members), func(member plan.Member) bool {
			return member.Prefix.IsSingleIP() && own(member.Prefix.Addr())
		})
	}
	return !slices.Equal(foreign(old.Members), foreign(view.Members))
}

// confirmer reports to the directory which of its views the node's flows implement.
type confirmer struct {
	wake signal

	mutex sync.Mutex
	// views holds, for each rail, the version of the view that its flows were made of.
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
		c.wake.notify()
	}
}

func (c *confirmer) version(rail string) uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.views[rail]
}

// confirmViews runs until ctx ends. A rail without attachments admits nothing, so it delays no confirmation even if it
// is broken.
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
				version = min(version, r.confirm.version(name))
			}
		}
		if version <= confirmed {
			continue
		}
		confirmCtx, cancel := context.WithTimeout(ctx, confirmBound)
		err := r.directory.Confirm(confirmCtx, version)
		cancel()
		if err != nil {
			r.log.Warn("cannot confirm flows to the other nodes", "error", err)
			if !pause(ctx, time.Second) {
				return
			}
			r.confirm.wake.notify()
			continue
		}
		confirmed = version
	}
}

// localTenants returns the tenants with pods here, sorted.
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

// pause waits and returns false if ctx ended.
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
