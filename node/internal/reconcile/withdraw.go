package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/store"
)

const (
	// maxHeld is how long an address is reserved if it is unknown whether the leaf has withdrawn it. A leaf keeps
	// routes of an ended session for 120 s, both in `railwrightd frr-config` and by FRR's default.
	maxHeld = 130 * time.Second
	// withdrawBound bounds a wait for the leaf; the housekeeping tries again.
	withdrawBound = time.Second
)

// withdrawals remembers what leaves may know about attachments.
type withdrawals struct {
	mutex sync.Mutex
	// known maps attachments to whether their routes were ever requested; since holds the time since when their
	// addresses are reserved.
	known map[attachment.Key]bool
	since map[attachment.Key]time.Time
	// settled holds the attachments that no datapath forwards to any more.
	settled map[attachment.Key]bool
}

func newWithdrawals() *withdrawals {
	return &withdrawals{known: map[attachment.Key]bool{}, since: map[attachment.Key]time.Time{}, settled: map[attachment.Key]bool{}}
}

// note records an attachment with its current parts. An attachment that was already leaving before this process started
// counts as announced.
func (w *withdrawals) note(record store.Record) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_, noted := w.known[record.Key]
	w.known[record.Key] = w.known[record.Key] || record.Has(attachment.Routes) || record.Leaving() && !noted
}

func (w *withdrawals) forget(key attachment.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.known, key)
	delete(w.since, key)
	delete(w.settled, key)
}

// held returns how long the addresses are reserved already. announced is false if no leaf ever learned them.
func (w *withdrawals) held(key attachment.Key) (length time.Duration, announced bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.known[key] {
		return 0, false
	}
	if w.since[key].IsZero() {
		w.since[key] = time.Now()
	}
	return time.Since(w.since[key]), true
}

// settle waits until no datapath forwards by flows of an attachment that were removed: two rounds, because one that is in
// progress may have read the flows before.
func (r *Reconciler) settle(ctx context.Context, key attachment.Key) error {
	r.withdrawals.mutex.Lock()
	settled := r.withdrawals.settled[key]
	r.withdrawals.mutex.Unlock()
	if settled {
		return nil
	}
	if err := r.openVSwitch.Settle(ctx, 2); err != nil {
		return err
	}
	r.withdrawals.mutex.Lock()
	defer r.withdrawals.mutex.Unlock()
	r.withdrawals.settled[key] = true
	return nil
}

// awaitWithdrawal waits for the leaf to withdraw the routes before others may use the addresses: while it has a route
// to this node, a route to another node is a second path. The error explains why the addresses are still reserved.
func (r *Reconciler) awaitWithdrawal(ctx context.Context, rail *rail, record store.Record) error {
	held, announced := r.withdrawals.held(record.Key)
	if !announced || held > maxHeld {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, withdrawBound)
	defer cancel()
	prefixes := make([]netip.Prefix, 0, len(record.Addresses))
	for _, address := range record.Addresses {
		prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
	}
	if err := r.announcer.WaitWithdrawn(ctx, rail.Rail, prefixes); err != nil {
		return fmt.Errorf("addresses are reserved for at most %s: %w", (maxHeld - held).Round(time.Second), err)
	}
	return nil
}
