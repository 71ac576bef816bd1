package reconcile

import (
	"context"
	"errors"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/store"
)

// A leaf's kernel has a route some 50 ms after its BGP was sent it.
const (
	firstProbePause = 5 * time.Millisecond
	lastProbePause  = 100 * time.Millisecond
)

// awaitForwarding until the leaf has sent a packet for each of the pod's addresses here, where the configuration asks for
// that: FRR's word is that the leaf was told, this is what the leaf does. Without flows there is nothing that counts.
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
		if !pause(ctx, length) {
			return fail(NotForwarded, "look for the pod's route in the leaf's table, and for a filter that keeps the leaf from "+
				"sending back by the port that a packet came by; without forward_timeout ADD does not wait for it",
				"the rail's leaf was asked %d times for %v and has sent nothing here within %s: %w", probes, missing, r.config.ForwardTimeout, reason)
		}
	}
}

var errNoProbeBack = errors.New("no packet came back")
