package reconcile

import (
	"context"
	"errors"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/pause"
	"railwright/node/internal/store"
)

// A leaf's kernel has a route about 50 ms after BGP sent it.
const (
	firstProbePause = 5 * time.Millisecond
	lastProbePause  = 100 * time.Millisecond
)

// awaitForwarding waits, if configured, until the leaf has sent a packet for each of the pod's addresses to this node:
// FRR only reports that the routes were sent to the leaf. Without flows no packet is counted.
func (r *Reconciler) awaitForwarding(ctx context.Context, rail *rail, record store.Record) error {
	if r.config.ForwardTimeout == 0 || !record.Has(attachment.Routes) || !record.Has(attachment.Flows) {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.config.ForwardTimeout)
	defer cancel()
	missing, reason, probes := record.Addresses, errNoProbeBack, 0
	for length := firstProbePause; ; length = min(length*3/2, lastProbePause) {
		left, err := r.openVSwitch.Unreached(ctx, rail.Rail, record.Number, missing)
		switch {
		case err == nil && len(left) == 0:
			r.metrics.Step("add", "forward", time.Since(began))
			return nil
		case err == nil:
			missing, reason = left, errNoProbeBack
			probes++
		case ctx.Err() == nil:
			reason = err
		}
		if !pause.For(ctx, length) {
			return fail(NotForwarded, "check the pod's route in the leaf's table, and that no filter keeps the leaf from "+
				"sending packets back out of their ingress port; without forward_timeout ADD does not wait for this",
				"rail's leaf returned none of %d probes for %v within %s: %w", probes, missing, r.config.ForwardTimeout, reason)
		}
	}
}

var errNoProbeBack = errors.New("no packet came back")
