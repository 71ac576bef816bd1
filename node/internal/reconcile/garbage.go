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
func (garbage *garbage) due(key attachment.Key, portGone bool, now time.Time) bool {
	garbage.mutex.Lock()
	defer garbage.mutex.Unlock()
	if garbage.missing == nil {
		garbage.missing = map[attachment.Key]time.Time{}
	}
	since, known := garbage.missing[key]
	if !known {
		garbage.missing[key] = now
		since = now
	}
	return portGone || now.Sub(since) >= garbage.grace
}

func (garbage *garbage) forget(key attachment.Key) {
	garbage.mutex.Lock()
	defer garbage.mutex.Unlock()
	delete(garbage.missing, key)
}

func (garbage *garbage) setUnseen(unseen map[attachment.Key]string) {
	garbage.mutex.Lock()
	defer garbage.mutex.Unlock()
	garbage.unseen = unseen
}

// unseenOf tells why nothing can be said of an attachment's pod; empty: something can.
func (garbage *garbage) unseenOf(key attachment.Key) string {
	garbage.mutex.Lock()
	defer garbage.mutex.Unlock()
	return garbage.unseen[key]
}

// buryLastBoot marks what cannot have outlived a start of the machine, before anything of it is programmed.
func (reconciler *Reconciler) buryLastBoot() {
	for _, record := range reconciler.store.All() {
		if record.Boot == reconciler.pods.Boot() || record.Leaving() {
			continue
		}
		reconciler.logOf(record).Info("collected: the node was started anew")
		reconciler.metrics.Collected("node-restart")
		record.Part = nil
		reconciler.write(record)
	}
}

// keepHouse until ctx ends: what leaves, and what has no pod.
func (reconciler *Reconciler) keepHouse(ctx context.Context) {
	tick := time.NewTicker(houseEvery)
	defer tick.Stop()
	tenants := time.NewTicker(tenantsEvery)
	defer tenants.Stop()
	known := orphans{}
	for {
		reconciler.tended.Store(time.Now().UnixNano())
		reconciler.finishLeaving(ctx)
		reconciler.sweep(ctx)
		// A pass wakes us, and what we do makes passes: not in a circle without end.
		if !pause(ctx, housePause) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			reconciler.sweepPorts(ctx, known)
		case <-reconciler.tend:
		case <-tenants.C:
			reconciler.moveTenants(ctx)
		}
	}
}

// finishLeaving goes on with what a DEL or an ADD had to leave behind.
func (reconciler *Reconciler) finishLeaving(ctx context.Context) {
	atOnce(reconciler.store.All(), func(record store.Record) {
		if !record.Leaving() || !reconciler.mayFinish(record) {
			return
		}
		unlock, free := reconciler.locks.try(record.Key)
		if !free {
			return
		}
		defer unlock()
		record, found := reconciler.store.Get(record.Key)
		if !found || !record.Leaving() {
			return
		}
		bound, end := context.WithTimeout(ctx, undoBound)
		defer end()
		if err := reconciler.undo(bound, record); err != nil {
			reconciler.logOf(record).Debug("not undone yet", "error", err)
			return
		}
		reconciler.logOf(record).Info("undone")
		if life, _ := reconciler.pods.Life(record.Attachment, record.Boot); life == collect.Gone {
			// Otherwise the plugin that made the port is there to take it away.
			reconciler.removePort(bound, record)
		}
	})
}

// mayFinish where the rail's last pass left nothing of the record; other rails' troubles must not hold it up.
func (reconciler *Reconciler) mayFinish(record store.Record) bool {
	rail := reconciler.rails[record.Rail]
	if rail == nil {
		return true
	}
	last := rail.lastSeen().outcome
	return last != nil && last.undone(record)
}

// sweep deletes the attachments whose pods are gone.
func (reconciler *Reconciler) sweep(ctx context.Context) {
	now, unseen := time.Now(), map[attachment.Key]string{}
	var dead []store.Record
	for _, record := range reconciler.store.All() {
		if record.Leaving() {
			continue
		}
		life, why := reconciler.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			reconciler.garbage.forget(record.Key)
		}
		if life == collect.Unknown {
			unseen[record.Key] = why
		}
		if life == collect.Gone && reconciler.garbage.due(record.Key, reconciler.portGone(record), now) {
			dead = append(dead, record)
		}
	}
	reconciler.garbage.setUnseen(unseen)
	atOnce(dead, func(record store.Record) { reconciler.collect(ctx, record) })
}

// portGone says whether the pod's end on this host is gone: a veth from the host, or a port from the bridge.
func (reconciler *Reconciler) portGone(record store.Record) bool {
	if reconciler.links.Gone(record.HostInterface) {
		return true
	}
	rail := reconciler.rails[record.Rail]
	if rail == nil {
		return false
	}
	last := rail.lastSeen().outcome
	return last != nil && last.flows == nil && last.left[record.Key] != ""
}

// collect one attachment, unless somebody works on it.
func (reconciler *Reconciler) collect(ctx context.Context, record store.Record) bool {
	collected := false
	reconciler.whenFree(record.Key, func(record store.Record) {
		// The look at the pod was without the lock: the key may have come to be another pod's.
		life, why := reconciler.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			return
		}
		collected = true
		reconciler.garbage.forget(record.Key)
		reconciler.metrics.Collected("pod-gone")
		log := reconciler.logOf(record)
		log.Info("collected: the pod is gone without a DEL", "why", why)
		bound, end := context.WithTimeout(ctx, undoBound)
		defer end()
		if err := reconciler.undo(bound, record); err != nil {
			log.Warn("what was collected is not undone yet", "error", err)
			return
		}
		reconciler.removePort(bound, record)
	})
	return collected
}

// removePort of a pod that is gone: nobody else is going to. Where a new pod was given the same VF, the port is its own.
func (reconciler *Reconciler) removePort(ctx context.Context, record store.Record) {
	for _, other := range reconciler.store.All() {
		if other.HostInterface == record.HostInterface {
			return
		}
	}
	if err := reconciler.openVSwitch.RemovePort(ctx, record.HostInterface, record.Netns); err != nil {
		reconciler.logOf(record).Warn("the port of a pod that is gone could not be removed", "port", record.HostInterface,
			"error", err)
	}
}

// CollectGarbage deletes the network's attachments that are not valid and whose pods are gone, and names them. A pod that
// lives keeps its own, whatever the list says: two runtimes may share a network.
func (reconciler *Reconciler) CollectGarbage(
	ctx context.Context, network string, valid []attachment.Key,
) ([]attachment.Key, error) {
	if err := reconciler.wait(ctx); err != nil {
		return nil, fail(Busy, "railwrightd is starting; try again", "nothing was done: %w", err)
	}
	listed := map[attachment.Key]bool{}
	for _, key := range valid {
		listed[key] = true
	}
	var candidates []store.Record
	for _, record := range reconciler.store.All() {
		if record.Key.Network != network || listed[record.Key] || record.Leaving() {
			continue
		}
		candidates = append(candidates, record)
	}
	var mutex sync.Mutex
	var deleted []attachment.Key
	atOnce(candidates, func(record store.Record) {
		if reconciler.collect(ctx, record) {
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
