package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/ledger"
)

const (
	// replyTimeout bounds a call of the store.
	replyTimeout = 5 * time.Second
	// Range of pauses between retries.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// idle is the longest pause between rounds.
	idle = 30 * time.Second
	// yieldRemoval is how long other nodes wait for the first node by name to remove records that are no longer used.
	yieldRemoval = 5 * time.Second
)

// exchange exchanges records with the store until ctx ends.
func (r *Replica) exchange(ctx context.Context) {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		r.settings.Store.Watch(ctx, r.receive, r.miss)
	}()
	defer func() { <-heard }()
	limiter := rate.NewLimiter(rate.Inf, 1)
	retry := firstRetry
	for ctx.Err() == nil {
		next, again, err := r.round(ctx, limiter)
		switch {
		case err != nil:
			next, again = time.Now().Add(retry), false
			retry = min(2*retry, lastRetry)
		case again:
			retry = firstRetry
		}
		if again {
			continue
		}
		timer := time.NewTimer(max(time.Until(next), 0))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.kick:
			// A kick must not shorten the pause after a failure.
			if err != nil {
				r.waitForRetry(ctx, timer)
			}
		}
		timer.Stop()
	}
}

func (r *Replica) waitForRetry(ctx context.Context, timer *time.Timer) {
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// receive takes in a snapshot of the store.
func (r *Replica) receive(snapshot tenants.Snapshot) {
	r.reachable()
	_ = r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Learn(snapshot, 0, now) })
}

// round publishes, reads and cleans up. It returns when the next round is due, and whether to run another at once.
func (r *Replica) round(ctx context.Context, limiter *rate.Limiter) (next time.Time, again bool, err error) {
	if r.currentLedger() == nil {
		return time.Now(), true, r.start(ctx)
	}
	now := time.Now()
	var due time.Time
	var reading, evicted bool
	r.quietly(func(ledger *ledger.Ledger) {
		evicted = ledger.Evicted()
		if evicted {
			ledger.Register(now)
		}
		next = ledger.Expire(now)
		ledger.Settle(now)
		due, reading = ledger.Due(), ledger.NeedsReading()
		pace := r.settings.Store.Pace(len(ledger.Nodes()) + 1)
		limiter.SetLimit(rate.Every(pace.Interval))
		limiter.SetBurst(pace.Burst)
	})
	if evicted {
		r.settings.Log.Warn("this node's record in the tenant directory was removed; creating a new one")
	}
	if !due.IsZero() && !now.Before(due) {
		if wait := delay(limiter, now); wait > 0 {
			due = now.Add(wait)
		} else if err := r.publish(ctx); err != nil {
			return next, false, err
		} else {
			return next, true, nil
		}
	}
	if reading {
		return next, true, r.read(ctx)
	}
	if err := r.remove(ctx, now); err != nil {
		return next, false, err
	}
	next = sooner(sooner(next, due), now.Add(idle))
	return next, false, nil
}

// delay returns how long the limiter makes a write wait. 0 means that the write may happen now.
func delay(limiter *rate.Limiter, now time.Time) time.Duration {
	reservation := limiter.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// start creates the ledger of a node that has none on disk, from the record that it published before, if any.
func (r *Replica) start(ctx context.Context) error {
	var snapshot tenants.Snapshot
	err := r.attempt(ctx, "reading", func(ctx context.Context) (err error) {
		snapshot, err = r.settings.Store.Read(ctx)
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	fresh := ledger.New(r.settings.Node, now)
	for _, record := range snapshot.Records {
		if record.Node == r.settings.Node && !record.Leaving {
			r.settings.Log.Warn("this node's state was lost; adopting its published record", "record", record.ID())
			fresh = ledger.Adopt(record, now)
			break
		}
	}
	fresh.Bound(r.settings.Pods, now)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ledger = fresh
	r.ledger.Learn(snapshot, 0, now)
	r.announce()
	return nil
}

func (r *Replica) currentLedger() *ledger.Ledger {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.ledger
}

// quietly changes the ledger without requesting another round.
func (r *Replica) quietly(do func(ledger *ledger.Ledger)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	do(r.ledger)
	r.notify()
}

func (r *Replica) publish(ctx context.Context) error {
	record, err := r.store((*ledger.Ledger).Record)
	if err == nil {
		err = r.attempt(ctx, "publishing", func(ctx context.Context) error { return r.settings.Store.Publish(ctx, record) })
	}
	r.quietly(func(ledger *ledger.Ledger) {
		switch {
		case err == nil:
			ledger.Acked(record, time.Now())
		case errors.Is(err, tenants.ErrRemoved), errors.Is(err, tenants.ErrForeign):
			ledger.Evict(time.Now())
			err = nil
		default:
			ledger.Failed(time.Now())
		}
	})
	return err
}

func (r *Replica) read(ctx context.Context) error {
	since := int64(0)
	r.quietly(func(ledger *ledger.Ledger) { since = ledger.Published() })
	var snapshot tenants.Snapshot
	err := r.attempt(ctx, "reading", func(ctx context.Context) (err error) {
		snapshot, err = r.settings.Store.Read(ctx)
		return err
	})
	if err != nil {
		return err
	}
	unexplained, unstored := 0, false
	r.quietly(func(ledger *ledger.Ledger) {
		before := ledger.Unpublished()
		ledger.Learn(snapshot, since, time.Now())
		unexplained, unstored = len(ledger.Unexplained()), ledger.Unpublished() != before
	})
	if unstored {
		if _, err := r.store((*ledger.Ledger).Draft); err != nil {
			return err
		}
	}
	if unexplained > 0 {
		return fmt.Errorf("some records of other nodes are unknown")
	}
	return nil
}

// remove removes records that no node uses any more.
func (r *Replica) remove(ctx context.Context, now time.Time) error {
	var departed []*tenants.Record
	first := true
	r.quietly(func(ledger *ledger.Ledger) {
		departed = ledger.Departed(now)
		nodes := ledger.Nodes()
		first = len(nodes) == 0 || r.settings.Node < nodes[0]
	})
	if len(departed) == 0 {
		r.departedSince = time.Time{}
		return nil
	}
	if r.departedSince.IsZero() {
		r.departedSince = now
	}
	if !first && now.Sub(r.departedSince) < yieldRemoval {
		return nil
	}
	r.departedSince = now
	for _, record := range departed {
		err := r.attempt(ctx, "removing", func(ctx context.Context) error { return r.settings.Store.Remove(ctx, record) })
		if err != nil {
			return err
		}
		r.settings.Log.Info("removed the record of a node that is off", "record", record.ID())
	}
	return nil
}

// attempt calls the store and records failures.
func (r *Replica) attempt(ctx context.Context, name string, do func(ctx context.Context) error) error {
	callCtx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	hung := time.AfterFunc(replyTimeout+time.Second, func() {
		r.miss(fmt.Errorf("%s: no reply for %s", name, replyTimeout+time.Second))
	})
	err := do(callCtx)
	hung.Stop()
	switch {
	case err == nil, errors.Is(err, tenants.ErrRemoved), errors.Is(err, tenants.ErrForeign):
		r.reachable()
	case ctx.Err() == nil:
		r.miss(fmt.Errorf("%s: %w", name, err))
	}
	return err
}

// miss records that the store does not reply.
func (r *Replica) miss(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.lost == nil {
		r.lostSince = time.Now()
		r.settings.Log.Warn("tenant directory is unreachable", "error", err)
	}
	r.lost = err
	r.notify()
}

func (r *Replica) reachable() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.lost != nil {
		r.settings.Log.Info("tenant directory is reachable again", "away", time.Since(r.lostSince).Round(time.Millisecond))
	}
	r.lost = nil
}
