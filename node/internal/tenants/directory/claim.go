package directory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

const (
	// giveBack is how long a claim waits for a holder that may be about to give the address up.
	giveBack  = time.Second
	lookAgain = 100 * time.Millisecond
)

// Claim implements tenants.Directory.
func (d *Directory) Claim(ctx context.Context, claim tenants.Claim) error {
	if err := tenants.CheckClaim(claim); err != nil {
		return err
	}
	if d.isGranted(claim) {
		return nil
	}
	if lost := d.lostOf(claim.Addresses); len(lost) > 0 {
		return fmt.Errorf("%w: %v", tenants.ErrLost, lost)
	}
	if _, err := d.grouped(ctx, "default"); errors.Is(err, tenants.ErrUnreachable) {
		return err
	}
	epoch, err := d.enter(ctx)
	if d.settings.without == epochGate && d.epoch() != "" {
		epoch, err = d.epoch(), nil
	}
	if err != nil {
		return err
	}
	var early map[string]tenants.List
	if d.settings.without == claimFirst {
		early, _ = d.readMembers(ctx, claim.Tenant)
	}
	if err := d.intend(claim); err != nil {
		return err
	}
	for _, address := range claim.Addresses {
		if err := d.create(ctx, claim, address, epoch); err != nil {
			d.abandon(ctx, claim, errors.Is(err, tenants.ErrTaken))
			return err
		}
	}
	return d.admit(ctx, claim, epoch, early)
}

// isGranted reports whether the claim was granted, now or before a restart.
func (d *Directory) isGranted(claim tenants.Claim) bool {
	return d.Holds(claim.Addresses) && !slices.ContainsFunc(claim.Addresses, func(address netip.Addr) bool {
		held := d.own(address)
		return held.Owner != claim.Owner || held.Tenant != claim.Tenant
	})
}

// lostOf returns the addresses that were lost and not withdrawn since.
func (d *Directory) lostOf(addresses []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addresses), func(address netip.Addr) bool { return !d.own(address).Lost })
}

// intend stores that this node is about to have the addresses.
func (d *Directory) intend(claim tenants.Claim) error {
	var lines []entry
	var refused error
	d.act(func(s *state) {
		for _, address := range claim.Addresses {
			held := s.owns[address]
			switch {
			case held != nil && (held.Owner != claim.Owner || held.Tenant != claim.Tenant):
				refused = fmt.Errorf("%w: %s belongs to %s of tenant %s on this node", tenants.ErrTaken, address, held.Owner, tenants.Display(held.Tenant))
			case held != nil && held.Phase == withdrawn:
				refused = fmt.Errorf("%w: %s is being given up on this node", tenants.ErrTaken, address)
			case held == nil:
				refused = errors.Join(refused, s.permit(address, claim.Tenant))
			}
		}
		if refused != nil {
			return
		}
		for _, address := range claim.Addresses {
			if s.owns[address] == nil {
				s.owns[address] = &own{Tenant: claim.Tenant, Rail: claim.Rail, Owner: claim.Owner, Phase: intended}
				lines = append(lines, ownEntry(address, s.owns[address]))
			}
		}
		s.rescope()
	})
	if refused != nil {
		return refused
	}
	if err := d.journal.write(lines...); err != nil {
		return fmt.Errorf("%w: store claim of %s: %w", tenants.ErrUnreachable, claim.Owner, err)
	}
	return nil
}

func ownEntry(address netip.Addr, held *own) entry {
	copied := *held
	return entry{Address: &address, Own: &copied}
}

// create creates the claim of an address. It waits a moment for a holder that may be about to give it up.
func (d *Directory) create(ctx context.Context, claim tenants.Claim, address netip.Addr, epoch string) error {
	if phase := d.own(address).Phase; phase != "" && phase != intended {
		return nil
	}
	for began := time.Now(); ; {
		object, err := d.obtain(ctx, claim, address)
		if err == nil {
			d.act(func(s *state) {
				if held := s.owns[address]; held != nil && held.Phase == intended && s.epoch == epoch {
					held.Phase, held.UID, held.Version = claimed, object.UID, object.Version
				}
			})
			return nil
		}
		if !errors.Is(err, tenants.ErrTaken) || time.Since(began) > giveBack || !pause.For(ctx, lookAgain) {
			return err
		}
	}
}

// obtain creates the claim of an address, or takes over one of this machine's.
func (d *Directory) obtain(ctx context.Context, claim tenants.Claim, address netip.Addr) (object tenants.Object, err error) {
	mine := look(d, func(*state) self { return d.self })
	spec := tenants.ClaimSpec{
		Address: address, Tenant: claim.Tenant, Rail: claim.Rail, Owner: claim.Owner, Node: mine.Node, Instance: mine.Instance,
	}
	name := tenants.ClaimName(address)
	object, err = d.write(ctx, "create claim", func(ctx context.Context) (tenants.Object, bool, error) {
		made, err := d.store.Create(ctx, tenants.Object{Kind: tenants.KindClaim, Name: name, Spec: tenants.Merge(nil, spec)})
		return made, true, err
	})
	if !errors.Is(err, tenants.ErrExists) {
		return object, err
	}
	held, err := d.get(ctx, tenants.KindClaim, name)
	if errors.Is(err, tenants.ErrGone) {
		return object, fmt.Errorf("%w: %s was given up this moment", tenants.ErrTaken, address)
	}
	if err != nil {
		return object, err
	}
	holder, err := tenants.Decode[tenants.ClaimSpec](held)
	switch {
	case err != nil:
		return object, fmt.Errorf("%w: %w", tenants.ErrTaken, err)
	case holder == spec || d.settings.without == claims:
		return held, nil // an earlier try
	case holder.Node != mine.Node || holder.Owner != claim.Owner || holder.Tenant != claim.Tenant || !d.isEarlier(ctx, holder):
		return object, fmt.Errorf("%w: %s is claimed by %s of tenant %s on node %s", tenants.ErrTaken, address, holder.Owner,
			tenants.Display(holder.Tenant), holder.Node)
	}
	object, err = d.write(ctx, "take over claim", func(ctx context.Context) (tenants.Object, bool, error) {
		held.Spec = tenants.Merge(held.Spec, spec)
		written, err := d.store.Update(ctx, held)
		return written, written.Version != held.Version, err
	})
	if errors.Is(err, tenants.ErrConflict) || errors.Is(err, tenants.ErrGone) {
		err = fmt.Errorf("%w: %s changes this moment", tenants.ErrTaken, address)
	}
	return object, err
}

// isEarlier reports whether this machine had the claim before it lost its state.
func (d *Directory) isEarlier(ctx context.Context, holder tenants.ClaimSpec) bool {
	object, err := d.get(ctx, tenants.KindNode, tenants.NodeName(holder.Node, holder.Instance))
	if err != nil {
		return false
	}
	spec, err := tenants.Decode[tenants.NodeSpec](object)
	return err == nil && spec.Machine != "" && spec.Machine == d.machineID()
}

// abandon undoes a claim that was not published. What it cannot undo stays until Release.
func (d *Directory) abandon(ctx context.Context, claim tenants.Claim, refused bool) {
	for _, address := range claim.Addresses {
		held := d.own(address)
		known := held.UID != ""
		if held.Phase != intended && held.Phase != claimed || !known && !refused {
			continue
		}
		if known && d.erase(ctx, address, held) != nil {
			continue
		}
		d.drop(address)
	}
}

// drop forgets an address whose claim is gone.
func (d *Directory) drop(address netip.Addr) {
	d.act(func(s *state) {
		delete(s.owns, address)
		s.show(address)
		s.rescope()
	})
	// If it is not on disk after a crash, the claim is found to be gone.
	_ = d.journal.write(entry{Address: &address})
}

// admit publishes claimed addresses and reads what others published before it grants them. Every machine had published in
// the epoch when the claim was made; in another one it does not count.
func (d *Directory) admit(ctx context.Context, claim tenants.Claim, epoch string, lists map[string]tenants.List) error {
	publisher := d.publisher(claim.Tenant)
	if err := publisher.turn.take(ctx); err != nil {
		return fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	defer publisher.turn.give()
	if d.isGranted(claim) {
		return nil // by the one before
	}
	d.mutex.Lock()
	batch := d.state.published(claim.Tenant)
	same, name := d.state.epoch == epoch, d.state.name
	d.mutex.Unlock()
	if !same {
		return fmt.Errorf("%w: its epoch changed; try again", tenants.ErrUnreachable)
	}
	if err := d.publish(ctx, claim.Tenant, publisher); err != nil {
		return err
	}
	if lists == nil {
		var err error
		if lists, err = d.readMembers(ctx, claim.Tenant); err != nil {
			return err
		}
	}
	if err := d.stillIn(ctx, epoch); err != nil {
		return err
	}
	if err := d.grant(name, epoch, batch, lists); err != nil {
		return err
	}
	if !d.isGranted(claim) {
		return fmt.Errorf("%w: claim of %s was withdrawn meanwhile", tenants.ErrUnreachable, claim.Owner)
	}
	return nil
}

// grant stores the lists and the claimed addresses of a batch as granted, then goes by them.
func (d *Directory) grant(name, epoch string, batch []netip.Addr, lists map[string]tenants.List) error {
	var lines []entry
	d.act(func(s *state) {
		for _, address := range batch {
			if held := s.owns[address]; held != nil && held.Phase == claimed {
				copied := *held
				copied.Phase = granted
				lines = append(lines, entry{Address: &address, Own: &copied})
			}
		}
	})
	synced := lists
	if d.settings.without == syncRead {
		synced = nil
		d.done.Go(func() {
			if pause.For(d.ctx, lastRetry) {
				_ = d.journal.writeLists(name, epoch, lists)
			}
		})
	}
	if err := d.journal.writeLists(name, epoch, synced, lines...); err != nil {
		return fmt.Errorf("%w: store what was read: %w", tenants.ErrUnreachable, err)
	}
	d.act(func(s *state) {
		if s.epoch != epoch {
			return
		}
		for tenant, list := range lists {
			s.learnList(tenant, list)
		}
		for _, line := range lines {
			if held := s.owns[*line.Address]; held != nil && held.Phase == claimed {
				held.Phase = granted
				s.show(*line.Address)
			}
		}
	})
	return nil
}

// readMembers reads the members of a tenant and its peers.
func (d *Directory) readMembers(ctx context.Context, tenant string) (map[string]tenants.List, error) {
	peers, err := d.resolvePeers(ctx, tenant)
	if err != nil {
		return nil, err
	}
	lists := map[string]tenants.List{}
	for _, concerned := range append([]string{tenant}, peers...) {
		if d.settings.without == readAtAdd || d.settings.without == readPeers && concerned != tenant {
			continue
		}
		if lists[concerned], err = d.list(ctx, tenants.KindMembers, concerned); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// resolvePeers returns the peers of a tenant, and finds out which namespaces they are.
func (d *Directory) resolvePeers(ctx context.Context, tenant string) ([]string, error) {
	for {
		d.mutex.Lock()
		peers, unknown := d.state.peers(tenant)
		d.mutex.Unlock()
		if len(unknown) == 0 {
			return peers, nil
		}
		for _, name := range unknown {
			if _, err := d.lookUp(ctx, name); err != nil && !errors.Is(err, tenants.ErrNoTenant) {
				return nil, err
			}
		}
	}
}
