package announce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/plan"
)

// WaitWithdrawn until the rail's leaf has none of the prefixes by this node. What a leaf keeps of a session that ended it
// keeps until it has heard all that there is in the next one, or for its own time: no session, no answer, and at once.
func (r *reader) WaitWithdrawn(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error {
	settings, err := r.settings.rail(rail.Name)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		all, err := r.heardAll(ctx, settings, prefixes)
		if err != nil {
			return err
		}
		missing, took, err := r.missing(ctx, settings, prefixes)
		if err != nil {
			return err
		}
		if all && len(missing) == len(prefixes) {
			return nil
		}
		waited := time.Since(began)
		select {
		case <-ctx.Done():
			if !all {
				return fmt.Errorf("%w: rail %s's leaf was not sent the end of all routes within %v", ErrNotReady, rail.Name,
					waited.Round(time.Millisecond))
			}
			return fmt.Errorf("bgpd still tells rail %s's leaf of %s after %v: %w", rail.Name, some(prefixes),
				waited.Round(time.Millisecond), ctx.Err())
		case <-time.After(min(lastPause, max(firstPause, 3*took, waited/20))):
		}
	}
}

// heardAll that there was at the session's start; an error where there is none.
func (r *reader) heardAll(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) (bool, error) {
	all, err := r.bgpd.neighbors(ctx)
	if err != nil {
		return false, err
	}
	known, err := rail.leafAmong(all)
	if err != nil {
		return false, err
	}
	if session := known.session(rail.neighbor()); !session.Established {
		return false, fmt.Errorf("%w: the session with %s is %s, and the leaf may keep what it heard", ErrNotReady, session.Peer, session.State)
	}
	return !slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return known.keeps(familyOf(prefix)) }), nil
}
