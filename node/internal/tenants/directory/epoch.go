package directory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// followEpoch publishes this machine in the current epoch, and again in every later one.
func (d *Directory) followEpoch(ctx context.Context) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		list, err := ask(ctx, d, "list RailEpoch", func(ctx context.Context) (tenants.List, error) {
			return d.store.List(ctx, tenants.KindEpoch, "")
		})
		if err == nil && d.stillIn(ctx, d.epoch()) != nil {
			d.mutex.Lock()
			d.passed = ""
			d.mutex.Unlock()
		}
		if err == nil {
			_, err = d.enter(ctx)
		}
		if err == nil {
			retry = firstRetry
			watching, stop := context.WithCancel(ctx)
			_ = d.store.Watch(watching, tenants.KindEpoch, "", list.Version, func(event tenants.Event) {
				if spec, err := tenants.Decode[tenants.EpochSpec](event.Object); err == nil && (event.Deleted || spec.ID != d.epoch()) {
					stop()
				}
			})
			stop()
		}
		if !pause.For(ctx, retry) {
			return
		}
	}
}

// readEpoch returns the current epoch, and begins the first one.
func (d *Directory) readEpoch(ctx context.Context) (spec tenants.EpochSpec, err error) {
	object, err := ask(ctx, d, "read RailEpoch", func(ctx context.Context) (object tenants.Object, err error) {
		object, err = d.store.Get(ctx, tenants.KindEpoch, "", tenants.EpochName)
		if errors.Is(err, tenants.ErrGone) {
			object = tenants.Object{Kind: tenants.KindEpoch, Name: tenants.EpochName, Spec: tenants.Merge(nil, tenants.EpochSpec{ID: tenants.NewID()})}
			object, err = d.store.Create(ctx, object)
		}
		if errors.Is(err, tenants.ErrExists) {
			object, err = d.store.Get(ctx, tenants.KindEpoch, "", tenants.EpochName)
		}
		return object, err
	})
	if err != nil {
		return spec, err
	}
	if spec, err = tenants.Decode[tenants.EpochSpec](object); err != nil {
		err = fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	return spec, err
}

// stillIn returns an error unless the epoch is the current one, so that nothing that was read before is older than it.
func (d *Directory) stillIn(ctx context.Context, epoch string) error {
	now, err := d.readEpoch(ctx)
	if err != nil {
		return err
	}
	if now.ID != epoch {
		return fmt.Errorf("%w: its epoch changed, or is not entered yet; try again", tenants.ErrUnreachable)
	}
	return nil
}

// enter publishes all that this machine holds in the current epoch, and waits for nobody: it returns an error as long as
// another machine has not.
func (d *Directory) enter(ctx context.Context) (id string, err error) {
	d.mutex.Lock()
	id = d.passed
	done := id != "" && id == d.state.epoch && d.restored == ""
	d.mutex.Unlock()
	if done {
		return id, nil
	}
	if err := d.entering.take(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	defer d.entering.give()
	epoch, err := d.readEpoch(ctx)
	if err != nil {
		return "", err
	}
	return epoch.ID, d.enterEpoch(ctx, epoch)
}

// enterEpoch is enter for an epoch that was read. The caller has the turn.
func (d *Directory) enterEpoch(ctx context.Context, epoch tenants.EpochSpec) error {
	d.mutex.Lock()
	var lost []netip.Addr
	for address, held := range d.state.owns {
		if held.Lost {
			lost = append(lost, address)
		}
	}
	known := epoch.ID == d.state.epoch
	if d.state.entered[epoch.ID] && !known && d.settings.without != seeRestore {
		d.restored, known = restoredText("an epoch that ended"), true
	}
	restored := d.restored != ""
	registered := d.node.UID != ""
	half := d.half
	d.mutex.Unlock()
	if known && restored {
		return errRestored
	}
	known = known && !half
	if len(lost) > 0 {
		return fmt.Errorf("%w: flows of lost addresses may be left: %v", tenants.ErrUnreachable, lost)
	}
	if !known {
		if err := d.holdAgain(ctx, epoch.ID); err != nil {
			return err
		}
	}
	if !known || !registered {
		if err := d.register(ctx, epoch.ID); err != nil {
			return err
		}
	}
	if !known {
		if err := d.journal.write(entry{Epoch: epoch.ID}); err != nil {
			return fmt.Errorf("%w: store the epoch: %w", tenants.ErrUnreachable, err)
		}
	}
	return d.pass(ctx, epoch)
}

// holdAgain publishes in an epoch all that this machine holds. It then goes by this epoch.
func (d *Directory) holdAgain(ctx context.Context, epoch string) error {
	d.mutex.Lock()
	held := map[netip.Addr]tenants.Claim{}
	for address, mine := range d.state.owns {
		if !mine.Lost && mine.Phase != intended {
			held[address] = tenants.Claim{Tenant: mine.Tenant, Rail: mine.Rail, Owner: mine.Owner}
		}
	}
	d.mutex.Unlock()
	if err := d.obtainAgain(ctx, held); err != nil {
		return err
	}
	d.act(func(s *state) {
		d.gone, d.restored, d.passed = 0, "", ""
		d.round++
		d.half = true
		s.enter(epoch)
		for address, mine := range s.owns {
			// A claim made meanwhile may have been made in the store as it was before.
			_, again := held[address]
			switch {
			case again || mine.Phase == intended || mine.Phase == withdrawn:
			case mine.Phase == claimed:
				mine.Phase, mine.UID = intended, ""
			default:
				s.lose(address)
			}
		}
		s.rescope()
		d.move()
	})
	for _, tenant := range look(d, (*state).local) {
		if err := d.republish(ctx, tenant, true); err != nil {
			return err
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.half = false
	return nil
}

// obtainAgain creates the claims of addresses that this machine holds, where they are missing. It fails if another machine
// has one of them.
func (d *Directory) obtainAgain(ctx context.Context, held map[netip.Addr]tenants.Claim) error {
	var lines []entry
	for address, claim := range held {
		object, err := d.obtain(ctx, claim, address)
		if err != nil && !errors.Is(err, tenants.ErrTaken) {
			return err
		}
		d.act(func(s *state) {
			mine := s.owns[address]
			switch {
			case mine == nil:
			case err != nil:
				d.log.Error("another machine has an address of this one", "address", address, "error", err)
				lines = append(lines, s.lose(address))
			default:
				mine.UID, mine.Version = object.UID, object.Version
			}
		})
	}
	if err := d.journal.write(lines...); err != nil {
		return fmt.Errorf("%w: store what was lost: %w", tenants.ErrUnreachable, err)
	}
	if len(lines) > 0 {
		return fmt.Errorf("%w: flows of lost addresses may be left", tenants.ErrUnreachable)
	}
	return nil
}

// pass returns nil once every machine has published in the epoch or is off.
func (d *Directory) pass(ctx context.Context, epoch tenants.EpochSpec) error {
	if look(d, func(*state) bool { return d.passed == epoch.ID }) {
		return nil
	}
	missing, err := d.missingIn(ctx, epoch)
	if err != nil {
		return err
	}
	waiting := ""
	if len(missing) > 0 {
		waiting = fmt.Sprintf("tenant directory was restored, and no address is claimed until these nodes have published again or are declared off: %s",
			names(missing))
	}
	d.mutex.Lock()
	d.waiting = waiting
	d.mutex.Unlock()
	if waiting != "" {
		return fmt.Errorf("%w: %s", tenants.ErrUnreachable, waiting)
	}
	settled := false
	d.act(func(s *state) {
		if settled = s.epoch == epoch.ID; settled {
			d.passed = epoch.ID
			s.settle()
		}
	})
	if !settled {
		return nil
	}
	if err := d.journal.settle(epoch.ID); err != nil {
		return fmt.Errorf("%w: store the epoch: %w", tenants.ErrUnreachable, err)
	}
	return nil
}

// missingIn returns the nodes that have not published in the epoch and are not off.
func (d *Directory) missingIn(ctx context.Context, epoch tenants.EpochSpec) ([]string, error) {
	list, err := d.list(ctx, tenants.KindNode, "")
	if err != nil {
		return nil, err
	}
	var missing []string
	there := map[string]bool{}
	for _, object := range list.Objects {
		spec, err := tenants.Decode[tenants.NodeSpec](object)
		switch {
		case err != nil:
			d.log.Warn("a RailNode does not count", "error", err)
		case spec.IsOff(object), spec.Epoch == epoch.ID:
			there[spec.Node], there[object.Name] = true, true
		default:
			missing = append(missing, spec.Node)
		}
	}
	for _, node := range epoch.Nodes {
		if !there[node] && d.settings.without != epochNodes {
			missing = append(missing, node)
		}
	}
	return missing, nil
}

// RaiseEpoch begins a new epoch. nodes names the nodes that joined after the backup that the store was restored from.
func RaiseEpoch(ctx context.Context, store tenants.Store, nodes []string) (id string, err error) {
	spec := tenants.EpochSpec{ID: tenants.NewID(), Nodes: nodes}
	_, _, err = replace(ctx, store, tenants.Object{Kind: tenants.KindEpoch, Name: tenants.EpochName}, spec)
	return spec.ID, err
}
