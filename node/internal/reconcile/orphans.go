package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/openvswitch"
)

// orphans are ports of pods that are gone, of which there is no record, and since when they have been seen so. They are
// left where the power goes after ovs-cni made the port and before our plugin was called: ovs-cni finds no cache file of
// its own then, and its DEL does nothing. No flow knows such a port, but the VF could not be given to a pod any more.
type orphans map[openvswitch.PodPort]time.Time

// sweepPorts removes the orphans that have been some for the grace.
func (r *Reconciler) sweepPorts(ctx context.Context, known orphans) {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	ports, err := r.openVSwitch.PodPorts(ctx)
	if err != nil {
		clear(known) // nobody knows what happens to them meanwhile
		return
	}
	recorded := map[string]bool{}
	for _, record := range r.store.All() {
		recorded[record.HostInterface] = true
	}
	there := map[openvswitch.PodPort]bool{}
	for _, port := range ports {
		if recorded[port.HostInterface] || !r.namespaceGone(port.Netns) {
			continue
		}
		there[port] = true
		if since, seen := known[port]; !seen {
			known[port] = time.Now()
		} else if time.Since(since) >= r.garbage.grace {
			r.removeOrphan(ctx, port)
		}
	}
	for port := range known {
		if !there[port] {
			delete(known, port)
		}
	}
}

func (r *Reconciler) removeOrphan(ctx context.Context, port openvswitch.PodPort) {
	log := r.log.With("port", port.HostInterface, "netns", port.Netns)
	if err := r.openVSwitch.RemovePort(ctx, port.HostInterface, port.Netns); err != nil {
		log.Warn("a port whose pod is gone, and which has no record, could not be removed", "error", err)
		return
	}
	r.metrics.Collected("port-without-record")
	log.Info("collected: a port whose pod is gone, and which has no record")
}

// namespaceGone says whether there is surely nothing at the path of a pod's network namespace.
func (r *Reconciler) namespaceGone(path string) bool {
	if _, err := r.pods.Identify(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	// Nor must it be the whole folder that cannot be seen.
	life, _ := r.pods.Life(attachment.Attachment{Netns: path}, r.pods.Boot())
	return life == collect.Gone
}
