package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	// claimBound for one claim in the background; an ADD has its own bound.
	claimBound  = 2 * time.Second
	claimsEvery = time.Second
	// mostAtOnce of the attachments that are worked on in the background.
	mostAtOnce = 64
)

// claims are the attachments whose addresses the tenant directory has as theirs. Only these get flows and new routes:
// with an address that may still be another tenant's a pod could reach that tenant's pods.
type claims struct {
	mutex sync.Mutex
	held  map[attachment.Key]bool
	// refused tells why the last claim of an attachment failed.
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

// refusedOf tells why an attachment's addresses are not its own; nil: they are, or nobody has asked yet.
func (c *claims) refusedOf(key attachment.Key) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.refused[key]
}

// claim the addresses of a record for its tenant.
func (r *Reconciler) claim(ctx context.Context, record store.Record) error {
	err := r.directory.Claim(ctx, tenants.Claim{
		Tenant: record.Tenant, Rail: record.Rail, Owner: record.Key.String(), Addresses: record.Addresses,
	})
	r.claims.note(record.Key, err)
	if err == nil {
		r.watch.again()
	}
	return err
}

// claimAll that are stored, at start: until then no flow may be taken from a bridge, or pods that live would lose theirs.
func (r *Reconciler) claimAll(ctx context.Context) {
	atOnce(r.store.All(), func(record store.Record) {
		if record.Leaving() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, claimBound)
		defer cancel()
		if err := r.claim(ctx, record); err != nil {
			r.logOf(record).Warn("the addresses of a stored attachment are not its own", "error", err)
		}
	})
}

// retain gives up the claims whose attachments were lost with their files, once the bridges show nothing of them.
func (r *Reconciler) retain(ctx context.Context) {
	for pause(ctx, claimsEvery) {
		programmed := true
		for _, rail := range r.rails {
			last := rail.lastSeen().outcome
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
		r.log.Warn("claims of attachments that were lost could not be given up", "error", err)
		return false
	}
	return true
}

// keepClaims tries again what was refused, until ctx ends, and kicks the rails of those that succeed.
func (r *Reconciler) keepClaims(ctx context.Context) {
	for pause(ctx, claimsEvery) {
		atOnce(r.store.All(), func(record store.Record) {
			if record.Leaving() || r.claims.holds(record.Key) {
				return
			}
			r.whenFree(record.Key, func(record store.Record) {
				ctx, cancel := context.WithTimeout(ctx, claimBound)
				defer cancel()
				if r.claim(ctx, record) == nil {
					r.logOf(record).Info("the addresses are the attachment's again")
					r.kickRail(record.Rail, due{})
				}
			})
		})
	}
}

// atOnce calls act for all records, many at a time, so that their passes are shared; it returns when all are done.
func atOnce(records []store.Record, act func(store.Record)) {
	var group sync.WaitGroup
	turn := make(chan struct{}, mostAtOnce)
	for _, record := range records {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			act(record)
		})
	}
	group.Wait()
}

// whenFree calls act with the record of the key as it is now, unless somebody works on that key, or it is gone or
// leaving.
func (r *Reconciler) whenFree(key attachment.Key, act func(store.Record)) {
	unlock, free := r.locks.try(key)
	if !free {
		return
	}
	defer unlock()
	if record, found := r.store.Get(key); found && !record.Leaving() {
		act(record)
	}
}

// moveTenants follows namespaces that have come to be another tenant's: what the pod had as the old one ends first.
func (r *Reconciler) moveTenants(ctx context.Context) {
	for _, record := range r.store.All() {
		if record.Leaving() {
			continue
		}
		tenant, err := r.tenantOf(ctx, record.Pod.Namespace)
		if err != nil || tenant == record.Tenant {
			continue
		}
		r.whenFree(record.Key, func(record store.Record) { r.moveTenant(ctx, record, tenant) })
	}
}

func (r *Reconciler) moveTenant(ctx context.Context, record store.Record, tenant string) {
	log := r.logOf(record)
	log.Info("the pod's namespace is another tenant's now", "was", record.Tenant, "is", tenant)
	r.claims.drop(record.Key)
	if rail := r.rails[record.Rail]; rail != nil {
		ctx, cancel := context.WithTimeout(ctx, switchBound)
		defer cancel()
		if result, err := rail.ask(ctx); err != nil || result.flows != nil {
			// Left without a claim and with its old tenant: the next change, or the next look, tries again.
			log.Warn("the flows of the old tenant could not be deleted", "error", errors.Join(err, flowsOf(result)))
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	if err := r.directory.Release(ctx, record.Addresses); err != nil {
		log.Warn("the addresses could not be taken from the old tenant", "error", err)
		return
	}
	record.Tenant = tenant
	if err := r.store.Put(record); err != nil {
		log.Warn("the new tenant could not be stored", "error", err)
		r.store.Remember(record)
	}
	if err := r.claim(ctx, record); err != nil {
		log.Warn("the addresses could not be claimed for the new tenant yet", "error", err)
	}
	r.kickRail(record.Rail, due{})
}

func flowsOf(result *outcome) error {
	if result == nil {
		return nil
	}
	return result.flows
}
