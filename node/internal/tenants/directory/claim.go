package directory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

const (
	// giveBack is how long a claim waits for a holder that may be about to give the address up.
	giveBack  = time.Second
	lookAgain = 100 * time.Millisecond
)

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
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return !slices.ContainsFunc(claim.Addresses, func(address netip.Addr) bool {
		held := d.state.owns[address]
		return held == nil || held.Lost || held.Phase != granted || held.Owner != claim.Owner || held.Tenant != claim.Tenant
	})
}

// lostOf returns the addresses that were lost and not withdrawn since.
func (d *Directory) lostOf(addresses []netip.Addr) (lost []netip.Addr) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, address := range addresses {
		if held := d.state.owns[address]; held != nil && held.Lost {
			lost = append(lost, address)
		}
	}
	return lost
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
	if d.isClaimed(address) {
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
		if !errors.Is(err, tenants.ErrTaken) || time.Since(began) > giveBack || !pause(ctx, lookAgain) {
			return err
		}
	}
}

func (d *Directory) isClaimed(address netip.Addr) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	held := d.state.owns[address]
	return held != nil && held.Phase != intended
}

// obtain creates the claim of an address, or takes over one of this machine's.
func (d *Directory) obtain(ctx context.Context, claim tenants.Claim, address netip.Addr) (object tenants.Object, err error) {
	d.mutex.Lock()
	mine := d.self
	d.mutex.Unlock()
	spec := tenants.ClaimSpec{
		Address: address, Tenant: claim.Tenant, Rail: claim.Rail, Owner: claim.Owner, Node: mine.Node, Instance: mine.Instance,
	}
	object = tenants.Object{Kind: tenants.KindClaim, Name: tenants.ClaimName(address), Spec: tenants.Merge(nil, spec)}
	object, err = d.write(ctx, "create claim", object, d.store.Create)
	if !errors.Is(err, tenants.ErrExists) {
		return object, err
	}
	var held tenants.Object
	err = d.ask(ctx, "read claim", func(ctx context.Context) (err error) {
		held, err = d.store.Get(ctx, tenants.KindClaim, "", object.Name)
		return err
	})
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
	held.Spec = tenants.Merge(held.Spec, spec)
	object, err = d.write(ctx, "take over claim", held, d.store.Update)
	if errors.Is(err, tenants.ErrConflict) || errors.Is(err, tenants.ErrGone) {
		err = fmt.Errorf("%w: %s changes this moment", tenants.ErrTaken, address)
	}
	return object, err
}

// isEarlier reports whether this machine had the claim before it lost its state.
func (d *Directory) isEarlier(ctx context.Context, holder tenants.ClaimSpec) bool {
	var object tenants.Object
	err := d.ask(ctx, "read RailNode", func(ctx context.Context) (err error) {
		object, err = d.store.Get(ctx, tenants.KindNode, "", tenants.NodeName(holder.Node, holder.Instance))
		return err
	})
	if err != nil {
		return false
	}
	spec, err := tenants.Decode[tenants.NodeSpec](object)
	return err == nil && spec.Machine != "" && spec.Machine == d.machineID()
}

// machineID returns the ID of this machine, or "" if it is unknown.
func (d *Directory) machineID() string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.machine.ID != "" {
		return d.machine.ID
	}
	return d.settings.Machine
}

// abandon undoes a claim that was not published. What it cannot undo stays until Release.
func (d *Directory) abandon(ctx context.Context, claim tenants.Claim, refused bool) {
	for _, address := range claim.Addresses {
		d.mutex.Lock()
		held := d.state.owns[address]
		known := held != nil && held.UID != ""
		d.mutex.Unlock()
		if held == nil || held.Phase != intended && held.Phase != claimed || !known && !refused {
			continue
		}
		if known && d.erase(ctx, address) != nil {
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
			if pause(d.ctx, lastRetry) {
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
		return d.ask(ctx, "delete members", func(ctx context.Context) error {
			return remove(ctx, d.store, object, func(tenants.Object) bool { return true })
		})
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

// Withdraw implements tenants.Directory.
func (d *Directory) Withdraw(ctx context.Context, addresses []netip.Addr) error {
	// Until lost addresses are dropped, this machine has not published in the epoch, so others wait.
	if lost := d.lostOf(addresses); len(lost) > 0 {
		if !pause(ctx, tenants.Drain) {
			return fmt.Errorf("packets of %v may still be on their way: %w", lost, ctx.Err())
		}
		for _, address := range lost {
			d.drop(address)
		}
	}
	concerned := map[string]bool{}
	var lines []entry
	d.act(func(s *state) {
		for _, address := range addresses {
			held := s.owns[address]
			if held == nil {
				continue
			}
			concerned[held.Tenant] = true
			if held.Phase != withdrawn {
				held.Phase, held.since = withdrawn, time.Now()
				s.show(address)
				lines = append(lines, ownEntry(address, held))
			}
		}
		s.rescope()
	})
	if err := d.journal.write(lines...); err != nil {
		return fmt.Errorf("store that addresses are withdrawn: %w", err)
	}
	if d.settings.without == membersFirst {
		return nil
	}
	for tenant := range concerned {
		if err := d.republish(ctx, tenant); err != nil {
			return err
		}
	}
	return nil
}

// republish writes this node's members of a tenant unless what the store has is up to date.
func (d *Directory) republish(ctx context.Context, tenant string) error {
	publisher := d.publisher(tenant)
	if err := publisher.turn.take(ctx); err != nil {
		return fmt.Errorf("%w: %w", tenants.ErrUnreachable, err)
	}
	defer publisher.turn.give()
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

// Release implements tenants.Directory.
func (d *Directory) Release(ctx context.Context, addresses []netip.Addr) error {
	if err := d.Withdraw(ctx, addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		d.mutex.Lock()
		held := d.state.owns[address]
		d.mutex.Unlock()
		if held == nil {
			continue
		}
		if d.settings.without != drain && !pause(ctx, time.Until(held.since.Add(tenants.Drain))) {
			return fmt.Errorf("packets of %s may still be on their way: %w", address, ctx.Err())
		}
		if err := d.erase(ctx, address); err != nil {
			return err
		}
		d.drop(address)
	}
	return nil
}

// erase deletes the claim object of an address of this node.
func (d *Directory) erase(ctx context.Context, address netip.Addr) error {
	d.mutex.Lock()
	held, mine := *d.state.owns[address], d.self
	d.mutex.Unlock()
	object := tenants.Object{Kind: tenants.KindClaim, Name: tenants.ClaimName(address), UID: held.UID, Version: held.Version}
	return d.ask(ctx, "delete claim", func(ctx context.Context) error {
		return remove(ctx, d.store, object, func(now tenants.Object) bool {
			holder, err := tenants.Decode[tenants.ClaimSpec](now)
			return err == nil && holder.Node == mine.Node && holder.Instance == mine.Instance
		})
	})
}

// Retain implements tenants.Directory.
func (d *Directory) Retain(ctx context.Context, owners []string) error {
	known := make(map[string]bool, len(owners))
	for _, owner := range owners {
		known[owner] = true
	}
	var left []netip.Addr
	d.mutex.Lock()
	for address, held := range d.state.owns {
		if !known[held.Owner] {
			left = append(left, address)
		}
	}
	d.mutex.Unlock()
	slices.SortFunc(left, netip.Addr.Compare)
	if err := d.Release(ctx, left); err != nil {
		return err
	}
	d.done.Go(func() { d.freeEarlier(d.ctx) })
	return nil
}
