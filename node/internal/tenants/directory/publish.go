package directory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// turn is a mutex that one can wait for with a context.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

// publisher writes this node's members of a tenant, one write at a time. All that waits for its turn shares the next
// write and read.
type publisher struct {
	turn turn
	// object is the object as last written or read. Without a UID it is unknown.
	object tenants.Object
}

func (d *Directory) publisher(tenant string) *publisher {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found := d.publishers[tenant]
	if found == nil {
		found = &publisher{turn: make(turn, 1)}
		d.publishers[tenant] = found
	}
	return found
}

// publish writes this node's members of a tenant as they are now. The caller has the publisher's turn.
func (d *Directory) publish(ctx context.Context, tenant string, publisher *publisher) error {
	d.mutex.Lock()
	spec := tenants.MembersSpec{Addresses: d.state.published(tenant), Epoch: d.state.epoch}
	object := publisher.object
	if object.Name != d.state.name {
		object = tenants.Object{Kind: tenants.KindMembers, Space: tenant, Name: d.state.name}
	}
	d.mutex.Unlock()
	// Until an answer comes nothing is known of the object: a write may have happened.
	publisher.object = tenants.Object{}
	if len(spec.Addresses) == 0 {
		return d.remove(ctx, object, func(tenants.Object) bool { return true })
	}
	object, err := d.replace(ctx, object, spec)
	if err != nil {
		return err
	}
	publisher.object = object
	d.act(func(s *state) {
		if held := s.spaces[tenant]; held != nil && object.Version > held.floor {
			held.mine = object.Version
		}
	})
	return nil
}

// republish writes this node's members of a tenant unless what it wrote last is up to date. If that is lost, it forgets it first.
func (d *Directory) republish(ctx context.Context, tenant string, lost bool) error {
	publisher := d.publisher(tenant)
	if err := publisher.turn.take(ctx); err != nil {
		return fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	defer publisher.turn.give()
	if lost {
		publisher.object = tenants.Object{}
	}
	if publisher.object.UID != "" {
		d.mutex.Lock()
		want, epoch := d.state.published(tenant), d.state.epoch
		d.mutex.Unlock()
		has, err := tenants.Decode[tenants.MembersSpec](publisher.object)
		if err == nil && len(want) > 0 && slices.Equal(has.Addresses, want) && has.Epoch == epoch {
			return nil
		}
	}
	return d.publish(ctx, tenant, publisher)
}

// mend writes Members objects of this node again that were deleted, and starts anew if its RailNode was.
func (d *Directory) mend(ctx context.Context) {
	missed := map[string]bool{}
	for looked := time.Now(); pause.For(ctx, mendEvery); {
		var again []string
		d.mutex.Lock()
		for tenant, held := range d.state.spaces {
			missing := held.floor > 0 && held.mine == 0 && len(d.state.published(tenant)) > 0
			if missing && missed[tenant] {
				again = append(again, tenant)
			}
			missed[tenant] = missing
		}
		d.mutex.Unlock()
		for _, tenant := range again {
			d.log.Warn("members were deleted; writing them again", "tenant", tenant)
			if err := d.republish(ctx, tenant, true); err != nil {
				d.log.Warn("cannot write members again", "tenant", tenant, "error", err)
			}
		}
		if time.Since(looked) > selfEvery {
			looked = time.Now()
			d.lookAtSelf(ctx)
		}
	}
}
