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
func (replica *Replica) Claim(ctx context.Context, asked tenants.Claim) error {
	ctx, end := context.WithTimeout(ctx, mostWait)
	defer end()
	for began, pause := time.Now(), firstPause; ; pause *= 2 {
		if err := replica.begin(ctx, asked); err != nil {
			return err
		}
		blocked, err := replica.await(ctx, asked)
		if err != nil || blocked == nil {
			return err
		}
		refused := replica.withdraw(asked, blocked)
		if !blocked.Contended || time.Since(began) > giveBack || !sleep(ctx, pause) {
			return refused
		}
	}
}

// await the grant of a claim that was begun; else what stands in the way to the end.
func (replica *Replica) await(ctx context.Context, asked tenants.Claim) (*ledger.Blocked, error) {
	began := time.Now()
	for {
		blocked, moved, err := replica.decide(asked)
		if err != nil || blocked == nil {
			return nil, err
		}
		patience, patient := replica.patience(blocked, time.Since(began))
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

// sleep for a while; false where ctx has ended.
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

// begin writes the claim down, once there is a ledger to write it into.
func (replica *Replica) begin(ctx context.Context, asked tenants.Claim) error {
	began := time.Now()
	for {
		replica.mutex.Lock()
		moved, lost := replica.moved, replica.lost
		if replica.ledger != nil && replica.ledger.Ruled() {
			err := replica.ledger.Begin(asked, time.Now())
			replica.announce()
			replica.mutex.Unlock()
			return err
		}
		replica.mutex.Unlock()
		if lost != nil && time.Since(began) > reach {
			return fmt.Errorf("%w: %w", tenants.ErrUnreachable, lost)
		}
		timer := time.NewTimer(reach)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: it has not answered yet", tenants.ErrUnreachable)
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// decide asks the ledger. What it grants without a publication has to be on disk before anybody acts by it.
func (replica *Replica) decide(asked tenants.Claim) (*ledger.Blocked, chan struct{}, error) {
	replica.mutex.Lock()
	if replica.starting() {
		defer replica.mutex.Unlock()
		return &ledger.Blocked{Reason: tenants.ErrUnreachable, Detail: "it has not answered yet"}, replica.moved, nil
	}
	before := replica.ledger.Unpublished()
	blocked := replica.ledger.Decide(asked, time.Now())
	moved := replica.moved
	if blocked == nil {
		replica.announce()
	}
	store := blocked == nil && replica.ledger.Unpublished() != before
	replica.mutex.Unlock()
	if !store {
		return blocked, moved, nil
	}
	if _, err := replica.store((*ledger.Ledger).Draft); err != nil {
		_ = replica.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Release(asked.Addresses, now) })
		return nil, nil, fmt.Errorf("the claim of %s is not on disk: %w", asked.Owner, err)
	}
	return nil, moved, nil
}

// starting: what this node held when it was last up is not granted again before the directory was asked, unless it does
// not answer: the node may have been taken away meanwhile.
func (replica *Replica) starting() bool {
	return !replica.ledger.Current() && replica.lost == nil && time.Since(replica.opened) < firstAnswer
}

// patience with what stands in the way: how long until to look again, and whether to wait at all.
func (replica *Replica) patience(blocked *ledger.Blocked, waited time.Duration) (time.Duration, bool) {
	replica.mutex.Lock()
	defer replica.mutex.Unlock()
	bound := mostWait
	switch {
	case blocked.Final:
		return 0, false
	case blocked.Brief:
		bound = giveBack
	case errors.Is(blocked, tenants.ErrUnreachable) && (replica.lost != nil || replica.diskFault != nil):
		bound = reach
	}
	return min(max(bound-waited, 0), lookAgain), waited < bound
}

// withdraw what is not granted, and say why.
func (replica *Replica) withdraw(asked tenants.Claim, blocked *ledger.Blocked) error {
	_ = replica.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Withdraw(asked, now) })
	replica.mutex.Lock()
	defer replica.mutex.Unlock()
	if errors.Is(blocked, tenants.ErrUnreachable) {
		if replica.diskFault != nil {
			return fmt.Errorf("%w: %w", tenants.ErrUnreachable, replica.diskFault)
		}
		return replica.unreachable(blocked.Detail)
	}
	return blocked
}
