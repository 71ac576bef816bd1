package directory

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// Withdraw implements tenants.Directory.
func (d *Directory) Withdraw(ctx context.Context, addresses []netip.Addr) error {
	// Until lost addresses are dropped, this machine has not published in the epoch, so others wait.
	if lost := d.lostOf(addresses); len(lost) > 0 {
		if !pause.For(ctx, tenants.Drain) {
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
		if err := d.republish(ctx, tenant, false); err != nil {
			return err
		}
	}
	return nil
}

// Release implements tenants.Directory.
func (d *Directory) Release(ctx context.Context, addresses []netip.Addr) error {
	if err := d.Withdraw(ctx, addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		held := d.own(address)
		if held.Phase == "" {
			continue
		}
		if d.settings.without != drain && !pause.For(ctx, time.Until(held.since.Add(tenants.Drain))) {
			return fmt.Errorf("packets of %s may still be on their way: %w", address, ctx.Err())
		}
		if err := d.erase(ctx, address, held); err != nil {
			return err
		}
		d.drop(address)
	}
	return nil
}

// erase deletes the claim object of an address of this node.
func (d *Directory) erase(ctx context.Context, address netip.Addr, held own) error {
	mine := look(d, func(*state) self { return d.self })
	object := tenants.Object{Kind: tenants.KindClaim, Name: tenants.ClaimName(address), UID: held.UID, Version: held.Version}
	return d.remove(ctx, object, func(now tenants.Object) bool {
		holder, err := tenants.Decode[tenants.ClaimSpec](now)
		return err == nil && holder.Node == mine.Node && holder.Instance == mine.Instance
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
