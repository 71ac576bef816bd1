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

// orphans holds ports of dead pods without a record, and since when they are known. They remain if the power fails
// after ovs-cni created the port and before our plugin was called: ovs-cni then finds no cache file, and its DEL does
// nothing. Such a port has no flow, but its VF could not be given to a pod again.
type orphans map[openvswitch.PodPort]time.Time

// sweepPorts removes ports that have been orphans for the grace period.
func (r *Reconciler) sweepPorts(ctx context.Context, known orphans) {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	ports, err := r.openVSwitch.PodPorts(ctx)
	if err != nil {
		clear(known) // their state is unknown meanwhile
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
		log.Warn("cannot remove a dead pod's port without record", "error", err)
		return
	}
	r.metrics.Collected("port-without-record")
	log.Info("collected: a dead pod's port without record")
}

// namespaceGone reports whether the network namespace at the path certainly does not exist.
func (r *Reconciler) namespaceGone(path string) bool {
	if _, err := r.pods.Identify(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	// The whole folder might be invisible.
	life, _ := r.pods.Life(attachment.Attachment{Netns: path}, r.pods.Boot())
	return life == collect.Gone
}
