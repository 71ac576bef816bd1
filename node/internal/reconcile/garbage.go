package reconcile

import (
	"context"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/pause"
	"railwright/node/internal/store"
)

const (
	houseEvery   = 2 * time.Second
	housePause   = 200 * time.Millisecond
	tenantsEvery = 10 * time.Second
	// defaultGrace is how long a pod's namespace must be gone while its port still exists. A veth disappears with its
	// pod, but a VF's representor stays.
	defaultGrace = 10 * time.Second
)

// garbage remembers when pods of attachments were first missing.
type garbage struct {
	grace   time.Duration
	mutex   sync.Mutex
	missing map[attachment.Key]time.Time
	// unseen holds the reasons why the state of a pod is unknown.
	unseen map[attachment.Key]string
}

// due reports whether an attachment whose pod is gone must be deleted now.
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

// unseenOf returns why the state of an attachment's pod is unknown, or "".
func (g *garbage) unseenOf(key attachment.Key) string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.unseen[key]
}

// releaseLastBoot marks records of an earlier boot for deletion before anything of them is programmed.
func (r *Reconciler) releaseLastBoot() {
	for _, record := range r.store.All() {
		if record.Boot == r.pods.Boot() || record.Leaving() {
			continue
		}
		r.logFor(record).Info("collected: the node was restarted")
		r.metrics.Collected("node-restart")
		record.Part = nil
		r.write(record)
	}
}

// runHousekeeping finishes deletions and collects attachments without a pod, until ctx ends.
func (r *Reconciler) runHousekeeping(ctx context.Context) {
	tick := time.NewTicker(houseEvery)
	defer tick.Stop()
	tenants := time.NewTicker(tenantsEvery)
	defer tenants.Stop()
	known := orphans{}
	for {
		r.tended.Store(time.Now().UnixNano())
		r.finishLeaving(ctx)
		r.sweep(ctx)
		// A pass wakes this loop, and this loop causes passes; the pause prevents a busy loop.
		if !pause.For(ctx, housePause) {
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

// finishLeaving completes the cleanup that a DEL or a failed ADD left.
func (r *Reconciler) finishLeaving(ctx context.Context) {
	forEachRecord(r.store.All(), func(record store.Record) {
		// Problems of other rails must not delay it.
		if !record.Leaving() || r.rails[record.Rail] != nil && r.isReal(record) {
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
		err := r.undo(ctx, record)
		if life, _ := r.pods.Life(record.Attachment, record.Boot); err == nil && life == collect.Gone {
			// Otherwise the plugin that created the port removes it.
			r.removePort(ctx, record)
		}
		if err == nil {
			err = r.giveUp(ctx, record)
		}
		if err != nil {
			r.logFor(record).Debug("not undone yet", "error", err)
			return
		}
		r.logFor(record).Info("undone")
	})
}

// sweep deletes attachments whose pods are gone.
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
	forEachRecord(dead, func(record store.Record) { r.collect(ctx, record) })
}

// portGone reports whether the host's end of the pod's interface is gone: a veth from the host, or a port from the
// bridge.
func (r *Reconciler) portGone(record store.Record) bool {
	if r.links.Gone(record.HostInterface) {
		return true
	}
	rail := r.rails[record.Rail]
	if rail == nil {
		return false
	}
	last := rail.lastPass().outcome
	return last != nil && last.flows == nil && last.unserved[record.Key] != ""
}

// collect deletes an attachment, unless another request holds its key.
func (r *Reconciler) collect(ctx context.Context, record store.Record) bool {
	collected := false
	r.ifFree(record.Key, func(record store.Record) {
		// The pod was checked without the lock: the key may belong to another pod now.
		life, reason := r.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			return
		}
		collected = true
		r.garbage.forget(record.Key)
		r.metrics.Collected("pod-gone")
		log := r.logFor(record)
		log.Info("collected: the pod is gone without a DEL", "why", reason)
		ctx, cancel := context.WithTimeout(ctx, undoBound)
		defer cancel()
		if err := r.undo(ctx, record); err != nil {
			log.Warn("collected attachment is not undone yet", "error", err)
			return
		}
		r.removePort(ctx, record)
	})
	return collected
}

// removePort removes the port of a dead pod, since nobody else will. If a new pod has the same VF, the port is its own.
func (r *Reconciler) removePort(ctx context.Context, record store.Record) {
	if record.HostInterface == "" {
		return
	}
	for _, other := range r.store.All() {
		if other.HostInterface == record.HostInterface && other.Key != record.Key {
			return
		}
	}
	if err := r.openVSwitch.RemovePort(ctx, record.HostInterface, record.Netns); err != nil {
		r.logFor(record).Warn("cannot remove the port of a dead pod", "port", record.HostInterface,
			"error", err)
		return
	}
	r.freeInterface(record.Key)
}

// CollectGarbage deletes the network's attachments that are not valid and whose pods are gone, and returns their keys.
// It keeps those of live pods whatever the list contains: two runtimes may share a network.
func (r *Reconciler) CollectGarbage(
	ctx context.Context, network string, valid []attachment.Key,
) ([]attachment.Key, error) {
	if err := r.wait(ctx); err != nil {
		return nil, fail(Busy, "railwrightd is starting; try again", "request not started: %w", err)
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
	forEachRecord(candidates, func(record store.Record) {
		if r.collect(ctx, record) {
			mutex.Lock()
			defer mutex.Unlock()
			deleted = append(deleted, record.Key)
		}
	})
	if ctx.Err() != nil {
		return deleted, fail(Busy, "try again", "garbage collection is incomplete: %w", ctx.Err())
	}
	return deleted, nil
}
