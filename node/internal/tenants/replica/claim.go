package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/ledger"
)

// Claim implements tenants.Directory.
func (r *Replica) Claim(ctx context.Context, claim tenants.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for began, pause := time.Now(), firstPause; ; pause *= 2 {
		if err := r.begin(ctx, claim); err != nil {
			return err
		}
		blocked, err := r.await(ctx, claim)
		if err != nil || blocked == nil {
			return err
		}
		refused := r.withdraw(claim, blocked)
		if !blocked.Contended || time.Since(began) > giveBack || !sleep(ctx, pause) {
			return refused
		}
	}
}

// await waits until the claim is granted, or returns what finally blocks it.
func (r *Replica) await(ctx context.Context, claim tenants.Claim) (*ledger.Blocked, error) {
	began := time.Now()
	for {
		blocked, moved, err := r.decide(claim)
		if err != nil || blocked == nil {
			return nil, err
		}
		patience, patient := r.patience(blocked, time.Since(began))
		if !patient {
			return blocked, nil
		}
		timer := time.NewTimer(patience)
		select {
		case <-ctx.Done():
			timer.Stop()
			return blocked, nil
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sleep waits and returns false if ctx ended.
func sleep(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// begin records the claim once there is a ledger.
func (r *Replica) begin(ctx context.Context, claim tenants.Claim) error {
	began := time.Now()
	for {
		r.mutex.Lock()
		moved, lost := r.moved, r.lost
		if r.ledger != nil && r.ledger.Ruled() {
			err := r.ledger.Begin(claim, time.Now())
			r.announce()
			r.mutex.Unlock()
			return err
		}
		r.mutex.Unlock()
		if lost != nil && time.Since(began) > reach {
			return fmt.Errorf("%w: %w", tenants.ErrUnreachable, lost)
		}
		timer := time.NewTimer(reach)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: no reply yet", tenants.ErrUnreachable)
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// decide asks the ledger. A grant without a publication must be on disk before it is used.
func (r *Replica) decide(claim tenants.Claim) (*ledger.Blocked, chan struct{}, error) {
	r.mutex.Lock()
	if r.starting() {
		defer r.mutex.Unlock()
		return &ledger.Blocked{Reason: tenants.ErrUnreachable, Detail: "no reply yet"}, r.moved, nil
	}
	before := r.ledger.Unpublished()
	blocked := r.ledger.Decide(claim, time.Now())
	moved := r.moved
	if blocked == nil {
		r.announce()
	}
	store := blocked == nil && r.ledger.Unpublished() != before
	r.mutex.Unlock()
	if !store {
		return blocked, moved, nil
	}
	if _, err := r.store((*ledger.Ledger).Draft); err != nil {
		_ = r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Release(claim.Addresses, now) })
		return nil, nil, fmt.Errorf("store claim of %s: %w", claim.Owner, err)
	}
	return nil, moved, nil
}

// starting reports whether the directory was not read yet after a start and may still reply. Claims of an earlier run
// are not granted meanwhile, because the node may have been declared off.
func (r *Replica) starting() bool {
	return !r.ledger.Current() && r.lost == nil && time.Since(r.opened) < firstAnswer
}

// patience returns how long to wait before trying again, and whether to wait at all.
func (r *Replica) patience(blocked *ledger.Blocked, waited time.Duration) (time.Duration, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	bound := maxWait
	switch {
	case blocked.Final:
		return 0, false
	case blocked.Brief:
		bound = giveBack
	case errors.Is(blocked, tenants.ErrUnreachable) && (r.lost != nil || r.diskFault != nil):
		bound = reach
	}
	return min(max(bound-waited, 0), lookAgain), waited < bound
}

// withdraw withdraws a refused claim and returns the reason.
func (r *Replica) withdraw(claim tenants.Claim, blocked *ledger.Blocked) error {
	_ = r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Withdraw(claim, now) })
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if errors.Is(blocked, tenants.ErrUnreachable) {
		if r.diskFault != nil {
			return fmt.Errorf("%w: %w", tenants.ErrUnreachable, r.diskFault)
		}
		return r.unreachable(blocked.Detail)
	}
	return blocked
}
