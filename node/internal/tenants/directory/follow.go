package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

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
		if !pause(ctx, retry) {
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

// followPolicy takes in the operators' policy.
func (d *Directory) followPolicy(ctx context.Context) {
	d.store.WatchPolicy(ctx, func(policy tenants.Policy) {
		d.mutex.Lock()
		d.policyFault = ""
		known := map[tenants.Peering]bool{}
		if d.state.policy != nil {
			for _, peering := range d.state.policy.Peerings {
				known[stamped(peering)] = true
			}
		}
		d.mutex.Unlock()
		// A peering is of the namespaces that there are when it is made. These are found out before it applies: pods of an earlier
		// namespace may still run here.
		settled, rules := policy, tenants.NewRules(policy)
		settled.Peerings = slices.DeleteFunc(slices.Clone(policy.Peerings), func(peering tenants.Peering) bool {
			return !known[stamped(peering)]
		})
		if len(settled.Peerings) == len(policy.Peerings) {
			d.takePolicy(policy)
			return
		}
		d.takePolicy(settled)
		d.act(func(s *state) {
			wanted := s.wanted(rules)
			for _, peering := range policy.Peerings {
				for _, tenant := range []string{peering.A, peering.B} {
					name, single := tenants.SingleNamespace(tenant)
					if single && !wanted[name] && !known[stamped(peering)] {
						d.asked++
						s.asked[name] = d.asked
						delete(s.named, name)
					}
				}
			}
		})
		if d.lookAgain(ctx, rules) {
			d.takePolicy(policy)
		}
	}, func(err error) {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.policyFault = err.Error()
	})
}

// stamped returns a peering that equals another one if both were made at the same time.
func stamped(peering tenants.Peering) tenants.Peering {
	peering.Made = time.Unix(0, peering.Made.UnixNano())
	return peering
}

func (d *Directory) takePolicy(policy tenants.Policy) {
	fresh := false
	d.act(func(s *state) {
		if s.policy != nil && reflect.DeepEqual(*s.policy, policy) {
			return
		}
		fresh = true
		s.policy, s.rules = &policy, tenants.NewRules(policy)
		s.rescope()
		s.version++
		s.redrawn = s.version
	})
	if !fresh {
		return
	}
	if err := d.journal.write(entry{Policy: &policy}); err != nil {
		d.log.Warn("cannot store the tenants", "error", err)
	}
}

// lookAgain finds out which namespaces the peerings of tenants here name now. It returns false if ctx ended first.
func (d *Directory) lookAgain(ctx context.Context, rules *tenants.Rules) bool {
	for ctx.Err() == nil {
		d.mutex.Lock()
		wanted := d.state.wanted(rules)
		d.mutex.Unlock()
		failed := false
		for name := range wanted {
			_, err := d.lookUp(ctx, name)
			failed = failed || err != nil && !errors.Is(err, tenants.ErrNoTenant)
		}
		if !failed {
			return true
		}
		if !pause(ctx, time.Second) {
			break
		}
	}
	return false
}

// followEpoch publishes this machine in the current epoch, and again in every later one.
func (d *Directory) followEpoch(ctx context.Context) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		var list tenants.List
		err := d.ask(ctx, "list RailEpoch", func(ctx context.Context) (err error) {
			list, err = d.store.List(ctx, tenants.KindEpoch, "")
			return err
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
		if !pause(ctx, retry) {
			return
		}
	}
}

// readEpoch returns the current epoch, and begins the first one.
func (d *Directory) readEpoch(ctx context.Context) (spec tenants.EpochSpec, err error) {
	var object tenants.Object
	err = d.ask(ctx, "read RailEpoch", func(ctx context.Context) (err error) {
		object, err = d.store.Get(ctx, tenants.KindEpoch, "", tenants.EpochName)
		if errors.Is(err, tenants.ErrGone) {
			object = tenants.Object{Kind: tenants.KindEpoch, Name: tenants.EpochName, Spec: tenants.Merge(nil, tenants.EpochSpec{ID: tenants.NewID()})}
			object, err = d.store.Create(ctx, object)
		}
		if errors.Is(err, tenants.ErrExists) {
			object, err = d.store.Get(ctx, tenants.KindEpoch, "", tenants.EpochName)
		}
		return err
	})
	if err != nil {
		return spec, err
	}
	spec, err = tenants.Decode[tenants.EpochSpec](object)
	if err != nil {
		return spec, fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	return spec, nil
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
	var held []tenants.Claim
	for address, mine := range d.state.owns {
		if !mine.Lost && mine.Phase != intended {
			held = append(held, tenants.Claim{Tenant: mine.Tenant, Rail: mine.Rail, Owner: mine.Owner})
			held[len(held)-1].Addresses = append(held[len(held)-1].Addresses, address)
		}
	}
	d.mutex.Unlock()
	again, err := d.obtainAgain(ctx, held)
	if err != nil {
		return err
	}
	d.act(func(s *state) {
		d.gone, d.restored, d.passed = 0, "", ""
		d.round++
		d.half = false
		s.enter(epoch)
		for address, mine := range s.owns {
			// A claim made meanwhile may have been made in the store as it was before.
			switch {
			case again[address] || mine.Phase == intended || mine.Phase == withdrawn:
			case mine.Phase == claimed:
				mine.Phase, mine.UID = intended, ""
			default:
				mine.Lost, mine.Phase, mine.UID = true, intended, ""
				s.show(address)
			}
		}
		s.rescope()
		d.move()
	})
	return d.publishAgain(ctx)
}

// obtainAgain creates the claims of addresses that this machine holds, where they are missing, and returns these
// addresses. It fails if another machine has one of them.
func (d *Directory) obtainAgain(ctx context.Context, held []tenants.Claim) (map[netip.Addr]bool, error) {
	var lines []entry
	again := map[netip.Addr]bool{}
	for _, claim := range held {
		address := claim.Addresses[0]
		again[address] = true
		object, err := d.obtain(ctx, claim, address)
		if err != nil && !errors.Is(err, tenants.ErrTaken) {
			return nil, err
		}
		d.act(func(s *state) {
			mine := s.owns[address]
			switch {
			case mine == nil:
			case err != nil:
				d.log.Error("another machine has an address of this one", "address", address, "error", err)
				mine.Lost, mine.Phase, mine.UID = true, intended, ""
				s.show(address)
				lines = append(lines, ownEntry(address, mine))
			default:
				mine.UID, mine.Version = object.UID, object.Version
			}
		})
	}
	if err := d.journal.write(lines...); err != nil {
		return nil, fmt.Errorf("%w: store what was lost: %w", tenants.ErrUnreachable, err)
	}
	if len(lines) > 0 {
		return nil, fmt.Errorf("%w: flows of lost addresses may be left", tenants.ErrUnreachable)
	}
	return again, nil
}

// publishAgain writes this machine's members of all its tenants.
func (d *Directory) publishAgain(ctx context.Context) error {
	d.mutex.Lock()
	local := d.state.local()
	d.mutex.Unlock()
	for _, tenant := range local {
		publisher := d.publisher(tenant)
		if err := publisher.turn.take(ctx); err != nil {
			d.forgetEpoch()
			return err
		}
		publisher.object = tenants.Object{}
		err := d.publish(ctx, tenant, publisher)
		publisher.turn.give()
		if err != nil {
			d.forgetEpoch()
			return err
		}
	}
	return nil
}

// forgetEpoch makes this machine enter the epoch again, because it did not publish everything.
func (d *Directory) forgetEpoch() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.half = true
}

// register writes this machine's RailNode.
func (d *Directory) register(ctx context.Context, epoch string) error {
	var machine tenants.Machine
	err := d.ask(ctx, "read Node", func(ctx context.Context) (err error) {
		machine, err = d.store.Machine(ctx, d.settings.Node)
		return err
	})
	if err != nil {
		return err
	}
	d.mutex.Lock()
	d.machine = machine
	mine, node := d.self, d.node
	d.mutex.Unlock()
	spec := tenants.NodeSpec{
		Node: mine.Node, Instance: mine.Instance, NodeUID: machine.NodeUID, Machine: d.machineID(), Boot: d.settings.Boot, Epoch: epoch,
	}
	if spec.NodeUID == "" {
		spec.NodeUID = mine.Instance
	}
	if before, err := tenants.Decode[tenants.NodeSpec](node); err != nil || before != spec {
		if node.UID == "" {
			node = tenants.Object{Kind: tenants.KindNode, Name: tenants.NodeName(spec.Node, spec.Instance)}
		}
		if node, err = d.replace(ctx, node, spec); err != nil {
			return err
		}
	}
	d.mutex.Lock()
	d.node = node
	d.mutex.Unlock()
	return nil
}

// pass returns nil once every machine has published in the epoch or is off.
func (d *Directory) pass(ctx context.Context, epoch tenants.EpochSpec) error {
	d.mutex.Lock()
	passed := d.passed == epoch.ID
	d.mutex.Unlock()
	if passed {
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

// mend writes Members objects of this node again that were deleted, and starts anew if its RailNode was.
func (d *Directory) mend(ctx context.Context) {
	missed := map[string]bool{}
	for looked := time.Now(); pause(ctx, mendEvery); {
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
			publisher := d.publisher(tenant)
			if publisher.turn.take(ctx) == nil {
				publisher.object = tenants.Object{}
				if err := d.publish(ctx, tenant, publisher); err != nil {
					d.log.Warn("cannot write members again", "tenant", tenant, "error", err)
				}
				publisher.turn.give()
			}
		}
		if time.Since(looked) > selfEvery {
			looked = time.Now()
			d.lookAtSelf(ctx)
		}
	}
}

// lookAtSelf starts anew if this machine was declared off although it runs: another instance proves all claims again.
func (d *Directory) lookAtSelf(ctx context.Context) {
	d.mutex.Lock()
	node := d.node
	d.mutex.Unlock()
	if node.UID == "" {
		return
	}
	err := d.ask(ctx, "read RailNode", func(ctx context.Context) error {
		_, err := d.store.Get(ctx, tenants.KindNode, "", node.Name)
		return err
	})
	if !errors.Is(err, tenants.ErrGone) || d.entering.take(ctx) != nil {
		return
	}
	defer d.entering.give()
	d.log.Error("this machine was declared off; its addresses must be claimed again")
	fresh := self{d.settings.Node, tenants.NewID()}
	lines := []entry{{Self: &fresh}}
	d.act(func(s *state) {
		d.self, d.node, d.passed = fresh, tenants.Object{}, ""
		s.name = tenants.NodeName(fresh.Node, fresh.Instance)
		for address, held := range s.owns {
			held.Lost, held.Phase, held.UID = true, intended, ""
			s.show(address)
			lines = append(lines, ownEntry(address, held))
		}
		d.publishers = map[string]*publisher{}
	})
	if err := d.journal.write(lines...); err != nil {
		d.log.Error("cannot store that this machine was declared off", "error", err)
	}
}
