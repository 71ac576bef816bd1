package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/pause"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	// portBound is how long an ADD waits for the port's OpenFlow number.
	portBound = 3 * time.Second
	// addClaimBound is how long an ADD waits for the tenant directory to accept its addresses.
	addClaimBound = 5 * time.Second
	// undoBound is how long a failed ADD, or a DEL, tries to undo before it leaves that to the housekeeping.
	undoBound = 5 * time.Second
)

// Attached is the result of an ADD.
type Attached struct {
	Rail, Tenant string
	// GatewayMAC is the MAC address in answers to the pod's gateway requests. Zero means unknown.
	GatewayMAC attachment.MAC
	// Userspace reports that the bridge's datapath does not complete checksums that the pod's interface leaves out.
	Userspace bool
}

// Attach realizes the wanted parts, or none of them. It fills in Rail, Tenant, NetnsInode, Added and Number. Its errors
// are of type *Failure.
func (r *Reconciler) Attach(ctx context.Context, want attachment.Attachment) (Attached, error) {
	began := time.Now()
	if err := r.wait(ctx); err != nil {
		return Attached{}, fail(Busy, "railwrightd is starting; try again", "request not started: %w", err)
	}
	unlock, err := r.locks.lock(ctx, want.Key)
	if err != nil {
		return Attached{}, fail(Busy, "try again", "attachment is in use by another request: %w", err)
	}
	defer unlock()
	r.replayOf(ctx, want.Key)
	record, before, err := r.storeAndClaim(ctx, want)
	if err == nil {
		err = r.realize(ctx, record, want)
	}
	if err != nil {
		if record.Number != 0 {
			r.rollBack(record, before)
		}
		return Attached{}, err
	}
	r.metrics.Step("add", "all", time.Since(began))
	r.logFor(record).Info("attached", "parts", want.Part, "addresses", record.Addresses,
		"tenant", record.Tenant, "took_s", time.Since(began).Seconds())
	bridge := r.rails[record.Rail].lastPass()
	return Attached{record.Rail, tenants.Display(record.Tenant), bridge.bridgeMAC, bridge.userspace}, nil
}

// maxNamed is the number of things that a message names.
const maxNamed = 5

// storeAndClaim stores the attachment and claims its addresses. If it returns an error and a record with a number, the
// caller must roll the record back.
func (r *Reconciler) storeAndClaim(
	ctx context.Context, want attachment.Attachment,
) (store.Record, *store.Record, error) {
	r.admission.RLock()
	defer r.admission.RUnlock()
	began := time.Now()
	record, before, err := r.admit(ctx, want)
	if err != nil {
		return store.Record{}, nil, err
	}
	r.withdrawals.note(record)
	failpoint.Reach(failpoint.AddStored)
	r.metrics.Step("add", "store", time.Since(began))
	began = time.Now()
	if !r.claims.holds(record.Key) {
		ctx, cancel := context.WithTimeout(ctx, addClaimBound)
		defer cancel()
		if err := r.claim(ctx, record); err != nil {
			return record, before, claimFailure(err)
		}
	}
	failpoint.Reach(failpoint.AddClaimed)
	r.metrics.Step("add", "claim", time.Since(began))
	return record, before, nil
}

// admit stores the attachment. before is the previous record, or nil.
func (r *Reconciler) admit(
	ctx context.Context, want attachment.Attachment,
) (record store.Record, before *store.Record, err error) {
	held, found := r.store.Get(want.Key)
	if found && held.Leaving() {
		ctx, cancel := context.WithTimeout(ctx, undoBound)
		defer cancel()
		if err := r.undoWholly(ctx, held); err != nil {
			return store.Record{}, nil, fail(Busy, "try again", "undo attachment of the last DEL: %w", err)
		}
		found = false
	}
	inode, err := r.pods.Identify(want.Netns)
	if err != nil {
		return store.Record{}, nil, fail(NoPod, "check the path that the runtime gave", "%w", err)
	}
	want.NetnsInode = inode
	if found {
		record, err = r.extend(held, want)
		return record, &held, err
	}
	record, err = r.admitNew(ctx, want)
	return record, nil, err
}

// extend adds missing parts to a record.
func (r *Reconciler) extend(held store.Record, want attachment.Attachment) (store.Record, error) {
	if different := firstDifference(held, want); different != "" {
		return store.Record{}, fail(Conflicting, "DEL it first",
			"%s is already attached with a different %s", held.Key, different)
	}
	record := held
	record.Part = slices.Clone(held.Part)
	for _, part := range want.Part {
		if !record.Has(part) {
			record.Part = append(record.Part, part)
		}
	}
	if want.Has(attachment.Flows) {
		record.MaxRate = want.MaxRate
	}
	if len(record.Part) == len(held.Part) {
		return held, nil
	}
	if err := r.store.Put(record); err != nil {
		return store.Record{}, notStored(err)
	}
	return record, nil
}

// firstDifference names the first difference. The rate counts only if both request flows.
func firstDifference(held store.Record, want attachment.Attachment) string {
	switch {
	case held.Pod != want.Pod:
		return "pod"
	case held.Netns != want.Netns || held.NetnsInode != want.NetnsInode:
		return "network namespace"
	case held.HostInterface != want.HostInterface:
		return "host interface"
	case held.MAC != want.MAC:
		return "MAC address"
	case !slices.Equal(held.Addresses, want.Addresses):
		return "address"
	case !slices.Equal(held.Gateways, want.Gateways):
		return "gateway"
	case held.DeviceID != want.DeviceID:
		return "device"
	case held.Has(attachment.Flows) && want.Has(attachment.Flows) && held.MaxRate != want.MaxRate:
		return "rate"
	}
	return ""
}

// realize programs a stored attachment on its rail, its addresses on all rails, and waits for the leaf.
func (r *Reconciler) realize(ctx context.Context, record store.Record, want attachment.Attachment) error {
	began := time.Now()
	rail := r.rails[record.Rail]
	if rail == nil {
		return fail(NoRail, "configure the rail again, or DEL the attachment",
			"rail %s is no longer configured", record.Rail)
	}
	if err := rail.realize(ctx, record); err != nil {
		return err
	}
	r.awaitRails(ctx, record)
	r.metrics.Step("add", "program", time.Since(began))
	began = time.Now()
	if err := r.awaitLeaf(ctx, rail, record, want); err != nil {
		return err
	}
	r.metrics.Step("add", "advertise", time.Since(began))
	return r.awaitForwarding(ctx, rail, record)
}

// realize requests passes until the attachment's parts are real. It waits only for a port that does not exist yet.
func (r *rail) realize(ctx context.Context, record store.Record) error {
	portCtx, cancel := context.WithTimeout(ctx, portBound)
	defer cancel()
	for length := 10 * time.Millisecond; ; length = min(2*length, 200*time.Millisecond) {
		result, err := r.requestPass(ctx)
		if err != nil {
			return fail(Busy, "check the daemon's log, then try again", "rail was not programmed in time: %w", err)
		}
		failure := result.failure(record)
		if failure == nil {
			return nil
		}
		if result.flows != nil || result.unserved[record.Key] == "" || !pause.For(portCtx, length) {
			return failure
		}
	}
}

func (r *Reconciler) awaitLeaf(
	ctx context.Context, rail *rail, record store.Record, want attachment.Attachment,
) error {
	if !want.Has(attachment.Routes) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.AdvertiseTimeout)
	defer cancel()
	if err := r.announcer.WaitAdvertised(ctx, rail.Rail, record.Prefixes()); err != nil {
		return fail(NotAdvertised,
			"check `show bgp summary` in vtysh, and the redistribution and filter of the rail's table",
			"routes were not advertised to the rail's leaf within %s: %w", r.config.AdvertiseTimeout, err)
	}
	failpoint.Reach(failpoint.AddAdvertised)
	return nil
}

// rollBack restores the previous record. It has its own deadline, because the caller may be gone.
func (r *Reconciler) rollBack(record store.Record, before *store.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), undoBound)
	defer cancel()
	log := r.logFor(record)
	if before == nil {
		if err := r.undo(ctx, record); err != nil {
			log.Warn("failed ADD is not undone yet", "error", err)
		}
		return
	}
	if slices.Equal(before.Part, record.Part) {
		return
	}
	if err := r.store.Put(*before); err != nil {
		log.Warn("cannot restore the record after a failed ADD", "error", err)
		r.store.Remember(*before)
	}
	if rail := r.rails[record.Rail]; rail != nil {
		if _, err := rail.requestPass(ctx); err != nil {
			log.Warn("failed ADD is not undone yet", "error", err)
		}
	}
}

func notStored(err error) *Failure {
	if errors.Is(err, store.ErrNumbers) {
		return fail(Full, "delete pods of this node", "%w", err)
	}
	return fail(NotStored, "make room in the state folder, or check its disk", "%w", err)
}
