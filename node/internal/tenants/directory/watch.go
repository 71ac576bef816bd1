package directory

import (
	"context"
	"errors"
	"maps"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// follow watches the members of the tenants that this node goes by.
func (d *Directory) follow(ctx context.Context) {
	type watcher struct {
		stop context.CancelFunc
		held *space
	}
	running, round := map[string]watcher{}, 0
	for {
		d.mutex.Lock()
		scope, spaces, moved := d.state.scope, maps.Clone(d.state.spaces), d.moved
		fresh := d.round != round
		round = d.round
		d.mutex.Unlock()
		for tenant, old := range running {
			if fresh || spaces[tenant] != old.held {
				old.stop()
				delete(running, tenant)
			}
		}
		for tenant, held := range spaces {
			if running[tenant].held == nil {
				watching, stop := context.WithCancel(ctx)
				running[tenant] = watcher{stop, held}
				d.done.Go(func() { d.followTenant(watching, tenant, held) })
			}
		}
		d.journal.forget(scope)
		select {
		case <-ctx.Done():
			for _, watcher := range running {
				watcher.stop()
			}
			return
		case <-moved:
		}
	}
}

// followTenant lists and watches the members of a tenant, as long as this node goes by it.
func (d *Directory) followTenant(ctx context.Context, tenant string, held *space) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		epoch := d.epoch()
		list, err := d.list(ctx, tenants.KindMembers, tenant)
		if err == nil && d.settings.without != epochMembers {
			err = d.stillIn(ctx, epoch)
		}
		if err == nil {
			d.act(func(s *state) {
				if s.spaces[tenant] == held && s.epoch == epoch {
					s.learnList(tenant, list)
				}
			})
			retry = firstRetry
			err = d.watchTenant(ctx, tenant, held, epoch, list.Version)
			if ctx.Err() == nil && !errors.Is(err, tenants.ErrExpired) {
				d.log.Debug("watch of members ended", "tenant", tenant, "error", err)
			}
		}
		if !pause.For(ctx, retry) {
			return
		}
	}
}

// watchTenant watches the members of a tenant after a version. The store may have been restored since the list, and a watch
// ends with the store that it is of, so its first event counts only if the epoch is still the current one.
func (d *Directory) watchTenant(ctx context.Context, tenant string, held *space, epoch string, version uint64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	checked := d.settings.without == epochMembers
	return d.store.Watch(ctx, tenants.KindMembers, tenant, version, func(event tenants.Event) {
		if !checked && (ctx.Err() != nil || d.stillIn(ctx, epoch) != nil) {
			stop()
			return
		}
		checked = true
		d.act(func(s *state) {
			if s.spaces[tenant] == held && s.epoch == epoch {
				s.learnEvent(tenant, event)
				d.gone = max(d.gone, event.Object.Version)
			}
		})
	})
}
