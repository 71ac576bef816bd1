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
	// mostHeld is how long an address is nobody else's where it cannot be told whether the leaf has withdrawn it: what a
	// leaf keeps of a session that ended it keeps for 120 s, as `railwrightd frr-config` has it, and as FRR does by default.
	mostHeld = 130 * time.Second
	// withdrawBound of a DEL; what takes longer is left to the housekeeping.
	withdrawBound = time.Second
	// holdBound of telling the other nodes.
	holdBound = time.Second
)

// withdrawals remember what leaves may know of attachments.
type withdrawals struct {
	mutex sync.Mutex
	// known attachments, and whether their routes were ever asked for; since when their addresses are held.
	known map[attachment.Key]bool
	since map[attachment.Key]time.Time
}

func newWithdrawals() *withdrawals {
	return &withdrawals{known: map[attachment.Key]bool{}, since: map[attachment.Key]time.Time{}}
}

// note an attachment with the parts that it has now. One that leaves since before this process is taken for one that was
// announced.
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
}

// held for so long now; false where no leaf has ever heard of it.
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

// hold the addresses for this node, in the directory.
func (r *Reconciler) hold(ctx context.Context, record store.Record) error {
	ctx, cancel := context.WithTimeout(ctx, holdBound)
	defer cancel()
	if err := r.directory.Hold(ctx, record.Addresses); err != nil {
		return fmt.Errorf("other nodes are not told so: %w", err)
	}
	return nil
}

// awaitWithdrawal by the leaf, of addresses that are then others' to use: as long as it has a route to this node, one to
// another node is a second path. An error says why the addresses are still held.
func (r *Reconciler) awaitWithdrawal(ctx context.Context, rail *rail, record store.Record) error {
	held, announced := r.withdrawals.held(record.Key)
	if !announced || held > mostHeld {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, withdrawBound)
	defer cancel()
	prefixes := make([]netip.Prefix, 0, len(record.Addresses))
	for _, address := range record.Addresses {
		prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
	}
	if err := r.announcer.WaitWithdrawn(ctx, rail.Rail, prefixes); err != nil {
		return fmt.Errorf("its addresses are held, at most %s: %w", (mostHeld - held).Round(time.Second), err)
	}
	return nil
}
