package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/store"
)

const (
	// portBound: how long an ADD waits until ovs-vswitchd has given the port its number.
	portBound = 3 * time.Second
	// addClaimBound: how long an ADD waits for the tenant directory to take its addresses.
	addClaimBound = 5 * time.Second
	// undoBound: how long an ADD that failed, or a DEL, tries to undo before it is left to the housekeeping.
	undoBound = 5 * time.Second
)

// Attached is what an ADD comes to.
type Attached struct {
	Rail, Tenant string
	// Unconfirmed nodes do not let the addresses in yet.
	Unconfirmed []string
	// GatewayMAC is what the pod's gateways are answered with; zero: not known.
	GatewayMAC attachment.MAC
	// Userspace: the bridge's datapath makes no checksum that the pod's interface leaves out.
	Userspace bool
}

// Attach makes the wanted parts real, or nothing of them. Rail, Tenant, NetnsInode, Added and Number are filled in here.
// Errors are *Failure.
func (r *Reconciler) Attach(ctx context.Context, want attachment.Attachment) (Attached, error) {
	began := time.Now()
	if err := r.wait(ctx); err != nil {
		return Attached{}, fail(Busy, "railwrightd is starting; try again", "nothing was done: %w", err)
	}
	unlock, err := r.locks.lock(ctx, want.Key)
	if err != nil {
		return Attached{}, fail(Busy, "try again", "the attachment is still being worked on: %w", err)
	}
	defer unlock()
	r.replayOf(ctx, want.Key)
	record, before, err := r.enter(ctx, want)
	var missing []string
	if err == nil {
		missing, err = r.realize(ctx, record, want)
	}
	if err != nil {
		if record.Number != 0 {
			r.rollBack(record, before)
		}
		return Attached{}, err
	}
	r.metrics.Step("add", "all", time.Since(began))
	r.logOf(record).Info("attached", "parts", want.Part, "addresses", record.Addresses,
		"tenant", record.Tenant, "took_s", time.Since(began).Seconds(), "unconfirmed_nodes", missing)
	if len(missing) > 0 {
		r.tellUnconfirmed(record, missing)
	}
	bridge := r.rails[record.Rail].lastSeen()
	return Attached{record.Rail, record.Tenant, missing, bridge.bridgeMAC, bridge.userspace}, nil
}

// mostNamed nodes in one message.
const mostNamed = 5

// tellUnconfirmed nodes: the pod starts, and what it sends there is dropped until they have heard of it.
func (r *Reconciler) tellUnconfirmed(record store.Record, missing []string) {
	r.metrics.Unconfirmed()
	if r.teller == nil {
		return
	}
	named := strings.Join(missing[:min(len(missing), mostNamed)], ", ")
	if more := len(missing) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	r.teller.TellPod(record.Pod, "NodesUnconfirmed", fmt.Sprintf("%s of rail %s is up; not confirmed within %s by %s, which "+
		"drops its packets until then", record.Key.Interface, record.Rail, r.config.ConfirmTimeout, named))
}

// enter stores what is wanted and claims its addresses. After an error a record with a number is to be rolled back.
func (r *Reconciler) enter(
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

// admit stores what is wanted. before is the record as it was, nil where there was none.
func (r *Reconciler) admit(
	ctx context.Context, want attachment.Attachment,
) (record store.Record, before *store.Record, err error) {
	held, found := r.store.Get(want.Key)
	if found && held.Leaving() {
		if err := r.undo(ctx, held); err != nil {
			return store.Record{}, nil, fail(Busy, "try again", "the attachment of the last DEL is still being undone: %w", err)
		}
		found = false
	}
	inode, err := r.pods.Identify(want.Netns)
	if err != nil {
		return store.Record{}, nil, fail(NoPod, "look at the path that the runtime gave", "%w", err)
	}
	want.NetnsInode = inode
	if found {
		record, err = r.extend(held, want)
		return record, &held, err
	}
	record, err = r.admitNew(ctx, want)
	return record, nil, err
}

// extend a record by parts that it does not have yet.
func (r *Reconciler) extend(held store.Record, want attachment.Attachment) (store.Record, error) {
	if different := differentBody(held, want); different != "" {
		return store.Record{}, fail(OtherBody, "DEL it first: one interface has one body",
			"%s is attached already, with another %s", held.Key, different)
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

// differentBody names what differs; the rate concerns the flows alone, and only they are asked for it.
func differentBody(held store.Record, want attachment.Attachment) string {
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

// realize what is stored: flows, routes, and the wait for the leaf and the other nodes.
func (r *Reconciler) realize(
	ctx context.Context, record store.Record, want attachment.Attachment,
) ([]string, error) {
	began := time.Now()
	rail := r.rails[record.Rail]
	if rail == nil {
		return nil, fail(NoRail, "put the rail back into the configuration, or DEL the attachment",
			"its rail %s is not configured any more", record.Rail)
	}
	if err := rail.realize(ctx, record); err != nil {
		return nil, err
	}
	r.metrics.Step("add", "program", time.Since(began))
	return r.awaitOthers(ctx, rail, record, want)
}

// realize asks for passes until the attachment's parts are real. Only a port that is not there yet is waited for.
func (r *rail) realize(ctx context.Context, record store.Record) error {
	portCtx, cancel := context.WithTimeout(ctx, portBound)
	defer cancel()
	for length := 10 * time.Millisecond; ; length = min(2*length, 200*time.Millisecond) {
		result, err := r.ask(ctx)
		if err != nil {
			return fail(Busy, "look at the daemon's log, then try again", "the rail was not done in time: %w", err)
		}
		failure := result.failure(record)
		if failure == nil {
			return nil
		}
		if result.flows != nil || result.left[record.Key] == "" || !pause(portCtx, length) {
			return failure
		}
	}
}

// awaitOthers waits for the leaf and, at the same time, for the other nodes.
func (r *Reconciler) awaitOthers(
	ctx context.Context, rail *rail, record store.Record, want attachment.Attachment,
) ([]string, error) {
	began := time.Now()
	confirmed := make(chan []string, 1)
	confirmCtx, cancel := context.WithTimeout(ctx, r.config.ConfirmTimeout)
	defer cancel()
	go func() { confirmed <- r.directory.WaitConfirmed(confirmCtx, record.Addresses) }()
	err := r.awaitLeaf(ctx, rail, record, want)
	r.metrics.Step("add", "advertise", time.Since(began))
	if err == nil {
		err = r.awaitForwarding(ctx, rail, record)
	}
	if err != nil {
		cancel()
		<-confirmed
		return nil, err
	}
	missing := <-confirmed
	r.metrics.Step("add", "confirm", time.Since(began))
	return missing, nil
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
			"look at `show bgp summary` in vtysh, and at the redistribution and filter of the rail's table",
			"the rail's leaf was not sent the routes within %s: %w", r.config.AdvertiseTimeout, err)
	}
	failpoint.Reach(failpoint.AddAdvertised)
	return nil
}

// rollBack to what was there before. Who asked may have gone: it has its own time.
func (r *Reconciler) rollBack(record store.Record, before *store.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), undoBound)
	defer cancel()
	log := r.logOf(record)
	if before == nil {
		if err := r.undo(ctx, record); err != nil {
			log.Warn("an ADD that failed is not undone yet", "error", err)
		}
		return
	}
	if slices.Equal(before.Part, record.Part) {
		return
	}
	if err := r.store.Put(*before); err != nil {
		log.Warn("what an ADD that failed had asked for could not be taken from the store", "error", err)
		r.store.Remember(*before)
	}
	if rail := r.rails[record.Rail]; rail != nil {
		if _, err := rail.ask(ctx); err != nil {
			log.Warn("an ADD that failed is not undone yet", "error", err)
		}
	}
}

func notStored(err error) *Failure {
	if errors.Is(err, store.ErrNumbers) {
		return fail(Full, "delete pods of this node", "%w", err)
	}
	return fail(NotStored, "make room in the state folder, or look at its disk", "%w", err)
}
