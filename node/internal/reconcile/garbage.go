package reconcile

import (
	"context"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/store"
)

const (
	houseEvery   = 2 * time.Second
	housePause   = 200 * time.Millisecond
	tenantsEvery = 10 * time.Second
	// defaultGrace: how long a pod's namespace must be gone while its port is still there. A veth goes with its pod at once;
	// a VF's representor stays, and only time tells.
	defaultGrace = 10 * time.Second
)

// garbage remembers since when the pods of attachments have not been seen.
type garbage struct {
	grace   time.Duration
	mutex   sync.Mutex
	missing map[attachment.Key]time.Time
	// unseen are pods of which nothing can be said, and why.
	unseen map[attachment.Key]string
}

// due says whether an attachment is to be deleted, now that its pod was seen to be gone.
func (g *garbage) due(key attachment.Key, portGone bool, now time.Time) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.missing == nil {
		g.missing = map[attachment.Key]time.Time{}
	}
	since, known := g.missing[key]
	if !known {
		g.missing[key] = now
		since = now
	}
	return portGone || now.Sub(since) >= g.grace
}

func (g *garbage) forget(key attachment.Key) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.missing, key)
}

func (g *garbage) setUnseen(unseen map[attachment.Key]string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.unseen = unseen
}

// unseenOf tells why nothing can be said of an attachment's pod; empty: something can.
func (g *garbage) unseenOf(key attachment.Key) string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.unseen[key]
}

// buryLastBoot marks what cannot have outlived a start of the machine, before anything of it is programmed.
func (r *Reconciler) buryLastBoot() {
	for _, record := range r.store.All() {
		if record.Boot == r.pods.Boot() || record.Leaving() {
			continue
		}
		r.logOf(record).Info("collected: the node was started anew")
		r.metrics.Collected("node-restart")
		record.Part = nil
		r.write(record)
	}
}

// keepHouse until ctx ends: what leaves, and what has no pod.
func (r *Reconciler) keepHouse(ctx context.Context) {
	tick := time.NewTicker(houseEvery)
	defer tick.Stop()
	tenants := time.NewTicker(tenantsEvery)
	defer tenants.Stop()
	known := orphans{}
	for {
		r.tended.Store(time.Now().UnixNano())
		r.finishLeaving(ctx)
		r.sweep(ctx)
		// A pass wakes us, and what we do makes passes: not in a circle without end.
		if !pause(ctx, housePause) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.sweepPorts(ctx, known)
		case <-r.tend:
		case <-tenants.C:
			r.moveTenants(ctx)
		}
	}
}

// finishLeaving goes on with what a DEL or an ADD had to leave behind.
func (r *Reconciler) finishLeaving(ctx context.Context) {
	atOnce(r.store.All(), func(record store.Record) {
		if !record.Leaving() || !r.mayFinish(record) {
			return
		}
		unlock, free := r.locks.try(record.Key)
		if !free {
			return
		}
		defer unlock()
		record, found := r.store.Get(record.Key)
		if !found || !record.Leaving() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, undoBound)
		defer cancel()
		if err := r.undo(ctx, record); err != nil {
			r.logOf(record).Debug("not undone yet", "error", err)
			return
		}
		r.logOf(record).Info("undone")
		if life, _ := r.pods.Life(record.Attachment, record.Boot); life == collect.Gone {
			// Otherwise the plugin that made the port is there to take it away.
			r.removePort(ctx, record)
		}
	})
}

// mayFinish where the rail's last pass left nothing of the record; other rails' troubles must not hold it up.
func (r *Reconciler) mayFinish(record store.Record) bool {
	rail := r.rails[record.Rail]
	if rail == nil {
		return true
	}
	last := rail.lastSeen().outcome
	return last != nil && last.undone(record)
}

// sweep deletes the attachments whose pods are gone.
func (r *Reconciler) sweep(ctx context.Context) {
	now, unseen := time.Now(), map[attachment.Key]string{}
	var dead []store.Record
	for _, record := range r.store.All() {
		if record.Leaving() {
			continue
		}
		life, reason := r.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			r.garbage.forget(record.Key)
		}
		if life == collect.Unknown {
			unseen[record.Key] = reason
		}
		if life == collect.Gone && r.garbage.due(record.Key, r.portGone(record), now) {
			dead = append(dead, record)
		}
	}
	r.garbage.setUnseen(unseen)
	atOnce(dead, func(record store.Record) { r.collect(ctx, record) })
}

// portGone says whether the pod's end on this host is gone: a veth from the host, or a port from the bridge.
func (r *Reconciler) portGone(record store.Record) bool {
	if r.links.Gone(record.HostInterface) {
		return true
	}
	rail := r.rails[record.Rail]
	if rail == nil {
		return false
	}
	last := rail.lastSeen().outcome
	return last != nil && last.flows == nil && last.left[record.Key] != ""
}

// collect one attachment, unless somebody works on it.
func (r *Reconciler) collect(ctx context.Context, record store.Record) bool {
	collected := false
	r.whenFree(record.Key, func(record store.Record) {
		// The look at the pod was without the lock: the key may have come to be another pod's.
		life, reason := r.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			return
		}
		collected = true
		r.garbage.forget(record.Key)
		r.metrics.Collected("pod-gone")
		log := r.logOf(record)
		log.Info("collected: the pod is gone without a DEL", "why", reason)
		ctx, cancel := context.WithTimeout(ctx, undoBound)
		defer cancel()
		if err := r.undo(ctx, record); err != nil {
			log.Warn("what was collected is not undone yet", "error", err)
			return
		}
		r.removePort(ctx, record)
	})
	return collected
}

// removePort of a pod that is gone: nobody else is going to. Where a new pod was given the same VF, the port is its own.
func (r *Reconciler) removePort(ctx context.Context, record store.Record) {
	for _, other := range r.store.All() {
		if other.HostInterface == record.HostInterface {
			return
		}
	}
	if err := r.openVSwitch.RemovePort(ctx, record.HostInterface, record.Netns); err != nil {
		r.logOf(record).Warn("the port of a pod that is gone could not be removed", "port", record.HostInterface,
			"error", err)
	}
}

// CollectGarbage deletes the network's attachments that are not valid and whose pods are gone, and names them. A pod that
// lives keeps its own, whatever the list says: two runtimes may share a network.
func (r *Reconciler) CollectGarbage(
	ctx context.Context, network string, valid []attachment.Key,
) ([]attachment.Key, error) {
	if err := r.wait(ctx); err != nil {
		return nil, fail(Busy, "railwrightd is starting; try again", "nothing was done: %w", err)
	}
	listed := map[attachment.Key]bool{}
	for _, key := range valid {
		listed[key] = true
	}
	var candidates []store.Record
	for _, record := range r.store.All() {
		if record.Key.Network != network || listed[record.Key] || record.Leaving() {
			continue
		}
		candidates = append(candidates, record)
	}
	var mutex sync.Mutex
	var deleted []attachment.Key
	atOnce(candidates, func(record store.Record) {
		if r.collect(ctx, record) {
			mutex.Lock()
			defer mutex.Unlock()
			deleted = append(deleted, record.Key)
		}
	})
	if ctx.Err() != nil {
		return deleted, fail(Busy, "try again", "not all was looked at: %w", ctx.Err())
	}
	return deleted, nil
}
