package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/config"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	bridgeBound = 2 * time.Second
	holderBound = 2 * time.Second
)

// admitNew finds the rail and the tenant of an attachment and stores it.
func (r *Reconciler) admitNew(ctx context.Context, want attachment.Attachment) (store.Record, error) {
	rail, err := r.railOf(ctx, want.HostInterface)
	if err != nil {
		return store.Record{}, err
	}
	if err := allowed(rail.configured, want); err != nil {
		return store.Record{}, err
	}
	if err := rail.mixed(); err != nil {
		return store.Record{}, fail(NoRail, "give the pods prefixes that hold no address of leaves and nodes", "%w", err)
	}
	tenant, err := r.tenantOf(ctx, want.Pod.Namespace)
	if err != nil {
		return store.Record{}, claimFailure(err)
	}
	want.Rail, want.Tenant, want.Added = rail.Name, tenant, time.Now().UTC()
	record := store.Record{Attachment: want, Boot: r.pods.Boot()}
	// One address may be held by the rest of one pod, the interface by that of another.
	for range 4 {
		stored, err := r.store.Reserve(record, func(others iter.Seq[store.Record]) error {
			return rail.hasRoom(record, others)
		})
		var conflict *store.Conflict
		var full *Failure
		switch {
		case err == nil:
			return stored, nil
		case errors.As(err, &full):
			return store.Record{}, full
		case !errors.As(err, &conflict):
			return store.Record{}, notStored(err)
		}
		if cause := r.bury(ctx, conflict.Holder); cause != nil {
			return store.Record{}, fail(Taken, "did the IPAM plugin give it twice? DEL the other pod first", "%w: %w",
				conflict, cause)
		}
	}
	return store.Record{}, fail(Busy, "try again", "the address or interface is taken again and again")
}

func (r *Reconciler) railOf(ctx context.Context, hostInterface string) (*rail, error) {
	ctx, cancel := context.WithTimeout(ctx, bridgeBound)
	defer cancel()
	bridge, err := r.openVSwitch.BridgeOf(ctx, hostInterface)
	if err != nil {
		return nil, fail(SwitchAway, "does the plugin before us in the chain add it to a rail's bridge? is ovsdb-server up?",
			"the bridge of %s cannot be told: %w", hostInterface, err)
	}
	var bridges []string
	for _, rail := range r.rails {
		switch {
		case rail.Bridge == bridge && rail.configured.Retired:
			return nil, fail(NoRail, "let the plugin before us use the bridge of a rail, or put this one back into the configuration",
				"%s is on the bridge of rail %s, which was taken out of the configuration", hostInterface, rail.Name)
		case rail.Bridge == bridge:
			return rail, nil
		case !rail.configured.Retired:
			bridges = append(bridges, rail.Bridge)
		}
	}
	slices.Sort(bridges)
	return nil, fail(NoRail, "let the plugin before us use the bridge of a rail",
		"%s is on the bridge %.40q; the rails' bridges are %s", hostInterface, bridge, strings.Join(bridges, ", "))
}

// allowed by the rail's families and prefixes, which FRR's filter holds as well.
func allowed(rail config.Rail, want attachment.Attachment) error {
	for _, address := range want.Addresses {
		if !rail.Carries(address) {
			return fail(WrongFamily, "let IPAM give addresses of the rail's families alone, or change the rail's families",
				"rail %s does not carry the family of %s", rail.Name, address)
		}
		if !rail.Allows(address) {
			return fail(Outside, "let IPAM give addresses out of the rail's prefixes, or change the rail's prefixes",
				"%s is in none of the prefixes of rail %s: %v", address, rail.Name, rail.Prefixes)
		}
	}
	return nil
}

// mixed prefixes hold pods' addresses and this host's: a pod of any node could be given one of these, and its route would
// take what is the host's. Each node looks at its own; nil: there is none, or the rail is retired and takes no pod anyway.
func (r *rail) mixed() error {
	if r.configured.Retired {
		return nil
	}
	addresses, err := r.reconciler.links.Within(r.configured.Prefixes)
	switch {
	case err != nil:
		return fmt.Errorf("whether this host has addresses among the pods' cannot be told: %w", err)
	case len(addresses) > 0:
		return fmt.Errorf("%s of this host lies in the pods' prefixes of rail %s, %v", strings.Join(addresses[:min(len(addresses), mostNamed)], ", "),
			r.Name, r.configured.Prefixes)
	}
	return nil
}

// hasRoom for the addresses in each family, also where their routes are asked for only later.
func (r *rail) hasRoom(record store.Record, others iter.Seq[store.Record]) error {
	count := map[int]int{}
	for other := range others {
		if other.Rail == r.Name {
			for _, address := range other.Addresses {
				count[address.BitLen()]++
			}
		}
	}
	for _, address := range record.Addresses {
		if held := count[address.BitLen()]; held >= r.configured.MaxPrefixes {
			return fail(Full, "raise max_prefixes together with the leaf's maximum-prefix, which would end the whole session",
				"rail %s holds %d addresses of the family of %s, its max_prefixes", r.Name, held, address)
		}
	}
	return nil
}

// bury what is left of another pod, which holds what a new one was given. nil: it is gone.
func (r *Reconciler) bury(ctx context.Context, holder store.Record) error {
	ctx, cancel := context.WithTimeout(ctx, holderBound)
	defer cancel()
	unlock, err := r.locks.lock(ctx, holder.Key)
	if err != nil {
		return errors.New("that one is being worked on")
	}
	defer unlock()
	record, found := r.store.Get(holder.Key)
	if !found {
		return nil
	}
	if !record.Leaving() {
		life, reason := r.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			return errors.New("that pod lives")
		}
		r.logOf(record).Info("collected: another pod was given what it held", "why", reason)
		r.metrics.Collected("given-anew")
	}
	return r.undo(ctx, record)
}

// claimFailure in the caller's terms.
func claimFailure(err error) *Failure {
	switch {
	case errors.Is(err, tenants.ErrTaken):
		return fail(Taken, "did IPAM give it on two nodes? delete the other pod first", "%w", err)
	case errors.Is(err, tenants.ErrNotReleased):
		return fail(NotReleased, "try again; a node that is off for good is to be forgotten by the tenant directory", "%w",
			err)
	case errors.Is(err, tenants.ErrOutside):
		return fail(Outside, "let IPAM give addresses out of the tenant's prefixes", "%w", err)
	case errors.Is(err, tenants.ErrNoTenant):
		return fail(NoTenant, "let one Tenant alone list the namespace", "%w", err)
	case errors.Is(err, tenants.ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fail(DirectoryAway, "look at the tenant directory, then try again", "%w", err)
	}
	return fail(DirectoryAway, "look at the tenant directory's problems", "the tenant directory refused: %w", err)
}
