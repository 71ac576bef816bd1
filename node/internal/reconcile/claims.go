package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/pause"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	// claimBound bounds a claim in the background. An ADD has its own bound.
	claimBound  = 3 * time.Second
	claimsEvery = time.Second
	// maxAtOnce limits the attachments that are processed concurrently in the background.
	maxAtOnce = 64
)

// claims holds the attachments whose addresses the tenant directory has accepted. Only these get flows and new routes:
// with an address that may still belong to another tenant, a pod could reach that tenant's pods.
type claims struct {
	mutex sync.Mutex
	held  map[attachment.Key]bool
	// refused holds the error of the last claim of an attachment.
	refused map[attachment.Key]error
}

func newClaims() *claims {
	return &claims{held: map[attachment.Key]bool{}, refused: map[attachment.Key]error{}}
}

func (c *claims) holds(key attachment.Key) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.held[key]
}

func (c *claims) drop(key attachment.Key) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.held, key)
	delete(c.refused, key)
}

func (c *claims) note(key attachment.Key, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err == nil {
		c.held[key] = true
		delete(c.refused, key)
	} else {
		c.refused[key] = err
	}
}

// refusedOf returns why an attachment's addresses are not its own, or nil if they are or no claim was made yet.
func (c *claims) refusedOf(key attachment.Key) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.refused[key]
}

// claim claims the addresses of a record for its tenant.
func (r *Reconciler) claim(ctx context.Context, record store.Record) error {
	err := r.directory.Claim(ctx, tenants.Claim{
		Tenant: record.Tenant, Rail: record.Rail, Owner: record.Key.String(), Addresses: record.Addresses,
	})
	r.claims.note(record.Key, err)
	return err
}

// claimAll claims all stored addresses at the start. Until then no flow may be removed from a bridge, or live pods
// would lose theirs.
func (r *Reconciler) claimAll(ctx context.Context) {
	forEachRecord(r.store.All(), func(record store.Record) {
		if record.Leaving() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, claimBound)
		defer cancel()
		if err := r.claim(ctx, record); err != nil {
			r.logFor(record).Warn("cannot claim addresses of a stored attachment", "error", err)
		}
	})
}

// retain releases the claims of attachments whose files were lost, once the bridges have none of their flows.
func (r *Reconciler) retain(ctx context.Context) {
	for pause.For(ctx, claimsEvery) {
		programmed := true
		for _, rail := range r.rails {
			last := rail.lastPass().outcome
			programmed = programmed && last != nil && last.flows == nil
		}
		if programmed && r.retainNow(ctx) {
			return
		}
	}
}

func (r *Reconciler) retainNow(ctx context.Context) bool {
	r.admission.Lock()
	defer r.admission.Unlock()
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	var owners []string
	for _, record := range r.store.All() {
		owners = append(owners, record.Key.String())
	}
	if err := r.directory.Retain(ctx, owners); err != nil {
		r.log.Warn("cannot release claims of lost attachments", "error", err)
		return false
	}
	return true
}

// keepClaims retries refused claims until ctx ends, and kicks the rails of those that succeed.
func (r *Reconciler) keepClaims(ctx context.Context) {
	for pause.For(ctx, claimsEvery) {
		forEachRecord(r.store.All(), func(record store.Record) {
			if record.Leaving() {
				return
			}
			if r.claims.holds(record.Key) {
				if r.directory.Holds(record.Addresses) {
					return
				}
				r.logFor(record).Error("its addresses are no longer this node's; its flows are removed")
				if r.notifier != nil {
					r.notifier.NotifyPod(record.Pod, "AddressLost", fmt.Sprintf("%v of %s are no longer this node's, because it was declared off; "+
						"nothing reaches them until the node has claimed them again", record.Addresses, record.Key.Interface))
				}
				r.claims.drop(record.Key)
				r.kickRail(record.Rail, due{})
			}
			r.ifFree(record.Key, func(record store.Record) {
				ctx, cancel := context.WithTimeout(ctx, undoBound)
				defer cancel()
				err := r.claim(ctx, record)
				if errors.Is(err, tenants.ErrLost) && r.cutOff(ctx, record) {
					err = r.claim(ctx, record)
				}
				if err == nil {
					r.logFor(record).Info("addresses are claimed again")
					r.kickRail(record.Rail, due{})
				}
			})
		})
	}
}

// cutOff removes the flows of a pod whose addresses were lost, so that others may have them.
func (r *Reconciler) cutOff(ctx context.Context, record store.Record) bool {
	rail := r.rails[record.Rail]
	if rail == nil {
		return false
	}
	result, err := rail.requestPass(ctx)
	if err := errors.Join(err, flowsOf(result)); err != nil {
		r.logFor(record).Warn("cannot remove flows of lost addresses", "error", err)
		return false
	}
	err = errors.Join(r.openVSwitch.Settle(ctx, 2), r.directory.Withdraw(ctx, record.Addresses))
	return err == nil
}

// forEachRecord calls act for all records, many concurrently so that they share passes, and waits for all.
func forEachRecord(records []store.Record, act func(store.Record)) {
	var group sync.WaitGroup
	turn := make(chan struct{}, maxAtOnce)
	for _, record := range records {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			act(record)
		})
	}
	group.Wait()
}

// ifFree calls act with the key's current record, unless another request holds the key or the record is gone or
// leaving.
func (r *Reconciler) ifFree(key attachment.Key, act func(store.Record)) {
	unlock, free := r.locks.try(key)
	if !free {
		return
	}
	defer unlock()
	if record, found := r.store.Get(key); found && !record.Leaving() {
		act(record)
	}
}

// moveTenants handles namespaces that moved to another tenant. What the pod had under the old tenant ends first.
func (r *Reconciler) moveTenants(ctx context.Context) {
	for _, record := range r.store.All() {
		if record.Leaving() {
			continue
		}
		tenant, err := r.directory.Regroup(ctx, record.Pod.Namespace, record.Tenant)
		if err != nil || tenant == record.Tenant {
			continue
		}
		r.ifFree(record.Key, func(record store.Record) { r.moveTenant(ctx, record, tenant) })
	}
}

func (r *Reconciler) moveTenant(ctx context.Context, record store.Record, tenant string) {
	log := r.logFor(record)
	log.Info("pod's namespace moved to another tenant", "was", record.Tenant, "is", tenant)
	r.claims.drop(record.Key)
	if rail := r.rails[record.Rail]; rail != nil {
		ctx, cancel := context.WithTimeout(ctx, switchBound)
		defer cancel()
		if result, err := rail.requestPass(ctx); err != nil || result.flows != nil {
			// It keeps its old tenant and has no claim; the next change or housekeeping round tries again.
			log.Warn("cannot delete flows of the old tenant", "error", errors.Join(err, flowsOf(result)))
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, undoBound)
	defer cancel()
	if err := errors.Join(r.openVSwitch.Settle(ctx, 2), r.directory.Release(ctx, record.Addresses)); err != nil {
		log.Warn("cannot release addresses of the old tenant", "error", err)
		return
	}
	record.Tenant = tenant
	if err := r.store.Put(record); err != nil {
		log.Warn("cannot store the new tenant", "error", err)
		r.store.Remember(record)
	}
	if err := r.claim(ctx, record); err != nil {
		log.Warn("cannot claim addresses for the new tenant yet", "error", err)
	}
	r.kickRail(record.Rail, due{})
}

func flowsOf(result *outcome) error {
	if result == nil {
		return nil
	}
	return result.flows
}
