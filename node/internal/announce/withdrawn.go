package announce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/plan"
)

// WaitWithdrawn waits until the rail's leaf has none of the prefixes from this node. A leaf keeps routes of an ended
// session until it has received all routes of the next one, or for its own time. Without a session WaitWithdrawn
// therefore fails at once.
func (r *reader) WaitWithdrawn(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error {
	settings, err := r.settings.rail(rail.Name)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		all, err := r.sentAll(ctx, settings, prefixes)
		if err != nil {
			return err
		}
		_, nowhere, took, err := r.missingPrefixes(ctx, settings, prefixes)
		if err != nil {
			return err
		}
		if all && len(nowhere) == len(prefixes) {
			return nil
		}
		waited := time.Since(began)
		select {
		case <-ctx.Done():
			if !all {
				return fmt.Errorf("%w: bgpd did not send the end of all routes to the leaf of rail %s within %v", ErrNotReady, rail.Name,
					waited.Round(time.Millisecond))
			}
			return fmt.Errorf("bgpd still announces %s to the leaf of rail %s after %v: %w", summarize(prefixes), rail.Name,
				waited.Round(time.Millisecond), ctx.Err())
		case <-time.After(min(lastPause, max(firstPause, 3*took, waited/20))):
		}
	}
}

// sentAll reports whether the leaf was sent all routes that bgpd had at the session's start. It fails without a
// session.
func (r *reader) sentAll(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (bool, error) {
	all, err := r.bgpd.neighbors(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range rail.neighbors() {
		known, err := rail.leafAmong(all, name)
		if err != nil {
			return false, err
		}
		if session := known.session(name); !session.Established {
			return false, fmt.Errorf("%w: session with %s is %s, and the leaf may keep its routes", ErrNotReady, session.Peer, session.State)
		}
		if slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return known.keeps(familyOf(prefix)) }) {
			return false, nil
		}
	}
	return true, nil
}
