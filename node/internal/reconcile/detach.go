package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/store"
)

// Detach undoes the parts named; what is gone already is fine. Once the record says on disk that the attachment leaves,
// the rest happens for sure: what cannot be undone within a bound (Open vSwitch or FRR are away) is no error, so that the
// pod does not hang in Terminating, but its addresses stay taken until it is.
func (r *Reconciler) Detach(ctx context.Context, key attachment.Key, parts []attachment.Part) error {
	if err := r.wait(ctx); err != nil {
		return fail(Busy, "railwrightd is starting; try again", "nothing was done: %w", err)
	}
	unlock, err := r.locks.lock(ctx, key)
	if err != nil {
		return fail(Busy, "try again", "the attachment is still being worked on: %w", err)
	}
	defer unlock()
	return r.detach(ctx, key, parts)
}

// detach with the key locked.
func (r *Reconciler) detach(ctx context.Context, key attachment.Key, parts []attachment.Part) error {
	began := time.Now()
	record, found := r.store.Get(key)
	if !found {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	rest := slices.DeleteFunc(slices.Clone(record.Part), func(part attachment.Part) bool {
		return slices.Contains(parts, part)
	})
	log := r.logOf(record)
	if len(rest) == 0 {
		if err := r.undo(ctx, record); err != nil {
			log.Warn("detached, but not all could be undone yet", "error", err)
			return nil
		}
	} else if len(rest) < len(record.Part) {
		if err := r.reduce(ctx, record, rest); err != nil {
			log.Warn("a part was given up, but could not be undone yet", "error", err)
			return nil
		}
	}
	r.metrics.Step("delete", "all", time.Since(began))
	log.Info("detached", "parts", parts, "took_s", time.Since(began).Seconds())
	return nil
}

// reduce a record to the parts that are left.
func (r *Reconciler) reduce(ctx context.Context, record store.Record, rest []attachment.Part) error {
	record.Part = rest
	r.write(record)
	failpoint.Reach(failpoint.DeleteStored)
	rail := r.rails[record.Rail]
	if rail == nil {
		return fmt.Errorf("its rail %s is not configured any more", record.Rail)
	}
	result, err := rail.ask(ctx)
	if err != nil {
		return err
	}
	return errors.Join(result.flows, result.routes)
}

// undo an attachment whose key the caller has locked: it leaves the store once nothing of it is real, and its addresses
// are others' to use. An error says what is still there; the housekeeping goes on with it.
func (r *Reconciler) undo(ctx context.Context, record store.Record) error {
	began := time.Now()
	r.withdrawals.note(record)
	if !record.Leaving() {
		record.Part = nil
		r.write(record)
		failpoint.Reach(failpoint.DeleteStored)
		r.metrics.Step("delete", "store", time.Since(began))
	}
	rail := r.rails[record.Rail]
	if rail == nil && record.Boot == r.pods.Boot() {
		return fmt.Errorf("its rail %s is neither configured nor known from before, so its flows and routes cannot be undone",
			record.Rail)
	}
	if rail != nil {
		began = time.Now()
		result, err := rail.ask(ctx)
		if err != nil {
			return fmt.Errorf("the rail was not done in time: %w", err)
		}
		if !result.undone(record) {
			return errors.Join(errStillThere, result.flows, result.routes)
		}
		r.metrics.Step("delete", "program", time.Since(began))
		began = time.Now()
		if err := r.awaitWithdrawal(ctx, rail, record); err != nil {
			return errors.Join(err, r.hold(ctx, record))
		}
		r.metrics.Step("delete", "withdraw", time.Since(began))
	}
	began = time.Now()
	if err := r.directory.Release(ctx, record.Addresses); err != nil {
		return fmt.Errorf("the tenant directory still has the addresses: %w", err)
	}
	r.metrics.Step("delete", "release", time.Since(began))
	failpoint.Reach(failpoint.DeleteReleased)
	r.claims.drop(record.Key)
	r.withdrawals.forget(record.Key)
	if err := r.store.Remove(record.Key); err != nil {
		return err
	}
	failpoint.Reach(failpoint.DeleteRemoved)
	r.watch.again()
	return nil
}

var errStillThere = errors.New("flows or routes are still there")

// write a record that shrinks. A full disk does not stop that: it goes on in memory, and after a crash the pod's missing
// network namespace brings it about.
func (r *Reconciler) write(record store.Record) {
	if err := r.store.Put(record); err != nil {
		r.logOf(record).Error("a DEL cannot be stored; it is done all the same", "error", err)
		r.store.Remember(record)
	}
}
