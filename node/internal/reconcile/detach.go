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

// Detach undoes the named parts. It is not an error if they are already gone. Once the record on disk says that the
// attachment leaves, the rest is certain to happen: a part that cannot be undone within a bound, because Open vSwitch
// or FRR is down, is no error, so that the pod does not hang in Terminating. Its addresses stay taken until it is
// undone.
func (r *Reconciler) Detach(ctx context.Context, key attachment.Key, parts []attachment.Part) error {
	if err := r.wait(ctx); err != nil {
		return fail(Busy, "railwrightd is starting; try again", "request not started: %w", err)
	}
	if record, found := r.store.Get(key); found && !r.isReal(record) {
		return nil // the housekeeping may have the lock until the addresses are given up
	}
	defer r.tend.notify() // once the key is unlocked
	unlock, err := r.locks.lock(ctx, key)
	if err != nil {
		return fail(Busy, "try again", "attachment is in use by another request: %w", err)
	}
	defer unlock()
	return r.detach(ctx, key, parts)
}

// detach is Detach with the key locked.
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
	log := r.logFor(record)
	if len(rest) == 0 {
		if err := r.undo(ctx, record); err != nil {
			log.Warn("detached, but not yet undone", "error", err)
			return nil
		}
	} else if len(rest) < len(record.Part) {
		if err := r.reduce(ctx, record, rest); err != nil {
			log.Warn("part released, but not yet undone", "error", err)
			return nil
		}
	}
	r.metrics.Step("delete", "all", time.Since(began))
	log.Info("detached", "parts", parts, "took_s", time.Since(began).Seconds())
	return nil
}

// reduce shrinks a record to the remaining parts.
func (r *Reconciler) reduce(ctx context.Context, record store.Record, rest []attachment.Part) error {
	record.Part = rest
	r.write(record)
	failpoint.Reach(failpoint.DeleteStored)
	rail := r.rails[record.Rail]
	if rail == nil {
		return fmt.Errorf("rail %s is no longer configured", record.Rail)
	}
	result, err := rail.requestPass(ctx)
	if err != nil {
		return err
	}
	return errors.Join(result.flows, result.routes)
}

// undo removes an attachment whose key the caller has locked. Afterwards no datapath forwards for it, FRR does not announce
// it, and no node admits it; its addresses are reserved until giveUp. The error names what remains; the housekeeping continues.
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
	if rail == nil {
		if record.Boot == r.pods.Boot() {
			return fmt.Errorf("rail %s is neither configured nor remembered, so flows and routes cannot be undone", record.Rail)
		}
		return nil
	}
	began = time.Now()
	result, err := rail.requestPass(ctx)
	if err != nil {
		return fmt.Errorf("rail was not programmed in time: %w", err)
	}
	if !result.undone(record) {
		return errors.Join(errStillThere, result.flows, result.routes)
	}
	r.metrics.Step("delete", "program", time.Since(began))
	began = time.Now()
	if err := r.settle(ctx, record.Key); err != nil {
		return err
	}
	r.metrics.Step("delete", "settle", time.Since(began))
	began = time.Now()
	if err := r.directory.Withdraw(ctx, record.Addresses); err != nil {
		return fmt.Errorf("withdraw addresses from the tenant directory: %w", err)
	}
	r.metrics.Step("delete", "withdraw", time.Since(began))
	if record.DeviceID != "" {
		r.freeInterface(record.Key)
	}
	return nil
}

// freeInterface lets the next pod have the interface of an attachment that is undone, while the addresses are still reserved.
// Only those of devices have names that return.
func (r *Reconciler) freeInterface(key attachment.Key) {
	record, found := r.store.Get(key)
	if !found || !record.Leaving() || record.HostInterface == "" {
		return
	}
	record.HostInterface = ""
	if err := r.store.Put(record); err != nil {
		r.logFor(record).Warn("the interface is free once the addresses are", "error", err)
	}
}

// giveUp waits until others may use the addresses of an attachment that is undone: until the leaf has withdrawn them and
// their packets are gone. Then the record leaves the store. The caller has locked the key.
func (r *Reconciler) giveUp(ctx context.Context, record store.Record) error {
	began := time.Now()
	rail := r.rails[record.Rail]
	if rail != nil {
		if err := r.awaitWithdrawal(ctx, rail, record); err != nil {
			return err
		}
	}
	if err := r.directory.Release(ctx, record.Addresses); err != nil {
		return fmt.Errorf("release addresses in the tenant directory: %w", err)
	}
	r.metrics.Step("delete", "release", time.Since(began))
	failpoint.Reach(failpoint.DeleteReleased)
	r.claims.drop(record.Key)
	r.withdrawals.forget(record.Key)
	if err := r.store.Remove(record.Key); err != nil {
		return err
	}
	failpoint.Reach(failpoint.DeleteRemoved)
	if rail != nil && rail.configured.Retired {
		// The rail is forgotten once its last attachment is gone.
		rail.kick(due{})
	}
	return nil
}

// undoWholly undoes an attachment and gives its addresses up.
func (r *Reconciler) undoWholly(ctx context.Context, record store.Record) error {
	if err := r.undo(ctx, record); err != nil {
		return err
	}
	return r.giveUp(ctx, record)
}

// isReal reports whether flows or routes of an attachment may exist.
func (r *Reconciler) isReal(record store.Record) bool {
	if !record.Leaving() {
		return true
	}
	rail := r.rails[record.Rail]
	if rail == nil {
		return record.Boot == r.pods.Boot()
	}
	last := rail.lastPass().outcome
	return last == nil || !last.undone(record)
}

var errStillThere = errors.New("flows or routes remain")

// write stores a record that shrinks. A full disk does not stop that: the change continues in memory, and after a crash
// the pod's missing network namespace completes it.
func (r *Reconciler) write(record store.Record) {
	if err := r.store.Put(record); err != nil {
		r.logFor(record).Error("cannot store DEL; continuing without", "error", err)
		r.store.Remember(record)
	}
}
