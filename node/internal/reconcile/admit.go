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
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	bridgeBound = 2 * time.Second
	holderBound = 2 * time.Second
)

// admitNew finds the rail and the tenant of a new attachment and stores it.
func (r *Reconciler) admitNew(ctx context.Context, want attachment.Attachment) (store.Record, error) {
	rail, err := r.railOf(ctx, want.HostInterface)
	if err != nil {
		return store.Record{}, err
	}
	if err := checkAddresses(rail.configured, want); err != nil {
		return store.Record{}, err
	}
	if err := rail.checkHostAddresses(); err != nil {
		return store.Record{}, fail(NoRail, "use prefixes for pods that contain no address of a leaf or node", "%w", err)
	}
	if err := r.checkRate(ctx, rail, want); err != nil {
		return store.Record{}, err
	}
	tenant, err := r.tenantOf(ctx, want.Pod.Namespace)
	if err != nil {
		return store.Record{}, claimFailure(err)
	}
	want.Rail, want.Tenant, want.Added = rail.Name, tenant, time.Now().UTC()
	record := store.Record{Attachment: want, Boot: r.pods.Boot()}
	// The remains of one pod can hold the address, those of another the interface.
	for range 4 {
		stored, err := r.store.Reserve(record, func(others iter.Seq[store.Record]) error {
			return rail.checkRoom(record, others)
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
		if cause := r.removeRemains(ctx, conflict.Holder); cause != nil {
			return store.Record{}, fail(Taken, "check whether IPAM assigned it twice, and delete the other pod first", "%w: %w",
				conflict, cause)
		}
	}
	return store.Record{}, fail(Busy, "try again", "address or interface was taken repeatedly")
}

func (r *Reconciler) railOf(ctx context.Context, hostInterface string) (*rail, error) {
	ctx, cancel := context.WithTimeout(ctx, bridgeBound)
	defer cancel()
	bridge, err := r.openVSwitch.BridgeOf(ctx, hostInterface)
	if err != nil {
		return nil, fail(SwitchUnavailable, "check that an earlier plugin of the chain adds it to a rail's bridge, and that ovsdb-server runs",
			"find bridge of %s: %w", hostInterface, err)
	}
	var bridges []string
	for _, rail := range r.rails {
		switch {
		case rail.Bridge == bridge && rail.configured.Retired:
			return nil, fail(NoRail, "use the bridge of a rail in the earlier plugin, or configure this rail again",
				"%s is on the bridge of rail %s, which is no longer configured", hostInterface, rail.Name)
		case rail.Bridge == bridge:
			return rail, nil
		case !rail.configured.Retired:
			bridges = append(bridges, rail.Bridge)
		}
	}
	slices.Sort(bridges)
	return nil, fail(NoRail, "use the bridge of a rail in the earlier plugin",
		"%s must be on the bridge of a rail, got %.40q; the rails' bridges are %s", hostInterface, bridge, strings.Join(bridges, ", "))
}

// checkAddresses checks the addresses against the rail's families and prefixes, as FRR's filter does.
func checkAddresses(rail config.Rail, want attachment.Attachment) error {
	for _, address := range want.Addresses {
		if !rail.Carries(address) {
			return fail(WrongFamily, "assign addresses of the rail's families only, or change the rail's prefixes",
				"rail %s does not carry the address family of %s", rail.Name, address)
		}
		if !rail.Allows(address) {
			return fail(OutsidePrefixes, "assign addresses within the rail's prefixes, or change the rail's prefixes",
				"address %s must be in a prefix of rail %s: %v", address, rail.Name, rail.Prefixes)
		}
	}
	return nil
}

// checkHostAddresses returns an error if addresses of this host are in the pods' prefixes: a pod of any node could get
// such an address, and its route would take the host's traffic. Each node checks its own. A retired rail takes no pod
// and is not checked.
func (r *rail) checkHostAddresses() error {
	if r.configured.Retired {
		return nil
	}
	addresses, err := r.reconciler.links.Within(r.configured.Prefixes)
	switch {
	case err != nil:
		return fmt.Errorf("check this host's addresses: %w", err)
	case len(addresses) > 0:
		return fmt.Errorf("host address %s is in the pods' prefixes of rail %s, %v", strings.Join(addresses[:min(len(addresses), maxNamed)], ", "),
			r.Name, r.configured.Prefixes)
	}
	return nil
}

// checkRate checks that the rail's bridge can limit the attachment to its rate.
func (r *Reconciler) checkRate(ctx context.Context, rail *rail, want attachment.Attachment) error {
	err := r.openVSwitch.CheckRate(ctx, rail.Bridge, want.MaxRate)
	switch {
	case errors.Is(err, openvswitch.ErrRate):
		return fail(RateTooHigh, "use Open vSwitch 3.2 or later, or a lower maxRate", "%w", err)
	case err != nil:
		return fail(SwitchUnavailable, "check ovs-vswitchd and the rail's bridge", "check rate: %w", err)
	}
	return nil
}

// checkRoom returns an error if the rail has no room for the addresses in a family. Addresses count even if their
// routes are requested later.
func (r *rail) checkRoom(record store.Record, others iter.Seq[store.Record]) error {
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
			return fail(Full, "raise max_prefixes, and keep the leaf's maximum-prefix above it",
				"rail %s already has %d addresses of the family of %s, its max_prefixes", r.Name, held, address)
		}
	}
	return nil
}

// removeRemains removes the remains of another pod that hold what a new pod was assigned. It returns nil if they are
// gone.
func (r *Reconciler) removeRemains(ctx context.Context, holder store.Record) error {
	ctx, cancel := context.WithTimeout(ctx, holderBound)
	defer cancel()
	unlock, err := r.locks.lock(ctx, holder.Key)
	if err != nil {
		return errors.New("that attachment is in use by another request")
	}
	defer unlock()
	record, found := r.store.Get(holder.Key)
	if !found {
		return nil
	}
	if !record.Leaving() {
		life, reason := r.pods.Life(record.Attachment, record.Boot)
		if life != collect.Gone {
			return errors.New("that pod is alive")
		}
		r.logFor(record).Info("collected: its address or interface was assigned to another pod", "why", reason)
		r.metrics.Collected("given-anew")
	}
	return r.undoWholly(ctx, record)
}

// claimFailure converts an error of the tenant directory.
func claimFailure(err error) *Failure {
	switch {
	case errors.Is(err, tenants.ErrTaken):
		return fail(Taken, "try again if its last pod was just deleted; otherwise check whether IPAM assigned it on two nodes, and delete the "+
			"other pod first, or run railwrightd forget NODE if that node is permanently off", "%w", err)
	case errors.Is(err, tenants.ErrOutside):
		return fail(OutsidePrefixes, "assign addresses within the tenant's prefixes", "%w", err)
	case errors.Is(err, tenants.ErrNoTenant):
		return fail(NoTenant, "list the namespace in a single Tenant", "%w", err)
	case errors.Is(err, tenants.ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fail(DirectoryUnavailable, "check the tenant directory, then try again", "%w", err)
	}
	return fail(DirectoryUnavailable, "check the tenant directory's problems in `railwrightd status`", "the tenant directory refused: %w", err)
}
