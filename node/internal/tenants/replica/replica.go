// Package replica is a node's part in the tenant directory: it drives the node's ledger, keeps it on disk and exchanges
// records with the other nodes through a store.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/ledger"
)

// Limits of waiting.
const (
	// giveBack is how long another node may take to publish a release, because it writes at a limited rate.
	giveBack = time.Second
	// reach is how long a claim waits for a directory whose last call failed.
	reach = 2 * time.Second
	// firstAnswer is how long the directory may take after a start.
	firstAnswer = time.Second
	// firstPause is the first pause before claiming an address again that another node claimed at the same time.
	firstPause = 50 * time.Millisecond
	// lookAgain is the longest pause without news, because time alone can change the result.
	lookAgain = 250 * time.Millisecond
	// maxNamed is the number of nodes that a message names.
	maxNamed = 5
	// maxWait bounds a claim whose context has no deadline.
	maxWait = 30 * time.Second
)

// Settings configure a replica.
type Settings struct {
	Node string
	// Folder is the folder for this node's state. It is created if missing.
	Folder string
	Store  tenants.Store
	Log    *slog.Logger
	// Pods are the pods' prefixes of this node's rails. Prefixes of tenants count only within them; nil means no limit.
	Pods []netip.Prefix
}

// Replica is a tenants.Directory.
type Replica struct {
	settings Settings
	opened   time.Time
	end      context.CancelFunc
	done     sync.WaitGroup
	kick     chan struct{}

	mutex  sync.Mutex
	ledger *ledger.Ledger
	// changed is closed when the view changes; moved at every change, for internal waiters.
	changed, moved chan struct{}
	version        uint64
	// lost is the last error of the store since lostSince, or nil. diskFault is the last error of writing the state.
	lostSince time.Time
	lost      error
	diskFault error
	damaged   string
	disk      disk
	writing   sync.Mutex
	// departedSince belongs to the exchange: the time since when records wait for removal.
	departedSince time.Time
}

var _ tenants.Directory = (*Replica)(nil)

// Open opens a node's replica until ctx ends or Close is called. It does not wait for the store.
func Open(ctx context.Context, settings Settings) (*Replica, error) {
	if err := tenants.CheckNode(settings.Node); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(settings.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("tenant directory: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	replica := &Replica{
		settings: settings, opened: time.Now(), end: cancel, kick: make(chan struct{}, 1),
		changed: make(chan struct{}), moved: make(chan struct{}), disk: disk{folder: settings.Folder},
	}
	if replica.settings.Log == nil {
		replica.settings.Log = slog.New(slog.DiscardHandler)
	}
	restored, damaged, err := replica.disk.load(settings.Node, time.Now())
	if err != nil {
		cancel()
		return nil, err
	}
	replica.damaged = damaged
	if restored != nil {
		restored.Bound(settings.Pods, time.Now())
	}
	replica.ledger = restored
	replica.done.Add(1)
	go func() {
		defer replica.done.Done()
		replica.exchange(ctx)
	}()
	return replica, nil
}

// Close stops the replica and waits for its end.
func (r *Replica) Close() {
	r.end()
	r.done.Wait()
}

// act changes the ledger and notifies waiters. Without a ledger it returns ErrUnreachable.
func (r *Replica) act(do func(ledger *ledger.Ledger, now time.Time)) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.ledger == nil {
		return r.unreachable("this node has never reached it")
	}
	do(r.ledger, time.Now())
	r.announce()
	return nil
}

// notify notifies waiters of a change. The caller holds the mutex.
func (r *Replica) notify() {
	close(r.moved)
	r.moved = make(chan struct{})
	if r.ledger == nil {
		return
	}
	if version := r.ledger.Version(); version != r.version {
		r.version = version
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// announce notifies waiters and the exchange.
func (r *Replica) announce() {
	r.notify()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *Replica) unreachable(reason string) error {
	if r.lost != nil {
		reason = r.lost.Error()
	}
	return fmt.Errorf("%w: %s", tenants.ErrUnreachable, reason)
}

// TenantOf implements tenants.Directory.
func (r *Replica) TenantOf(ctx context.Context, namespace string) (tenant string, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for {
		known := false
		var moved chan struct{}
		r.mutex.Lock()
		moved = r.moved
		if r.ledger != nil {
			tenant, err, known = r.ledger.TenantOf(namespace)
		}
		lost := r.lost
		r.mutex.Unlock()
		if known {
			return tenant, err
		}
		if lost != nil {
			return "", fmt.Errorf("%w: %w", tenants.ErrUnreachable, lost)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: tenants are not known yet", tenants.ErrUnreachable)
		case <-moved:
		}
	}
}

// Release implements tenants.Directory.
func (r *Replica) Release(_ context.Context, addresses []netip.Addr) error {
	err := r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Release(addresses, now) })
	if errors.Is(err, tenants.ErrUnreachable) {
		return nil // a node without a ledger holds nothing
	}
	return err
}

// Hold implements tenants.Directory.
func (r *Replica) Hold(ctx context.Context, addresses []netip.Addr) error {
	err := r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Hold(addresses, now) })
	if errors.Is(err, tenants.ErrUnreachable) {
		return nil // a node without a ledger holds nothing
	}
	for {
		r.mutex.Lock()
		moved, missing := r.moved, r.ledger.Missing(addresses)
		published := r.ledger.Hold(addresses, time.Now())
		r.mutex.Unlock()
		if published && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if !published {
				missing = []string{"any other node"}
			}
			return fmt.Errorf("%w: reservation of %v not confirmed by %s", tenants.ErrUnreachable, addresses,
				strings.Join(missing[:min(len(missing), maxNamed)], ", "))
		case <-moved:
		}
	}
}

// Retain implements tenants.Directory.
func (r *Replica) Retain(_ context.Context, owners []string) error {
	return r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Retain(owners, now) })
}

// View implements tenants.Directory.
func (r *Replica) View(local []string) (plan.Tenants, uint64, <-chan struct{}) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.ledger == nil {
		return plan.Tenants{}, 0, r.changed
	}
	view, version := r.ledger.View(local, time.Now())
	if version != r.version {
		r.announce()
	}
	return view, version, r.changed
}

// Confirm implements tenants.Directory.
func (r *Replica) Confirm(_ context.Context, version uint64) error {
	err := r.act(func(ledger *ledger.Ledger, now time.Time) { ledger.Confirm(version, now) })
	if errors.Is(err, tenants.ErrUnreachable) {
		return nil // nothing was admitted, and nobody waits for it
	}
	return err
}

// WaitConfirmed implements tenants.Directory.
func (r *Replica) WaitConfirmed(ctx context.Context, addresses []netip.Addr) []string {
	for {
		var missing []string
		r.mutex.Lock()
		moved := r.moved
		if r.ledger != nil {
			missing = r.ledger.Missing(addresses)
		}
		r.mutex.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return missing
		case <-moved:
		}
	}
}

// Stopped implements tenants.Directory.
func (r *Replica) Stopped() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var problems []string
	if r.lost != nil {
		problems = append(problems, fmt.Sprintf("tenant directory is unreachable since %s, keeping the last state: %v",
			r.lostSince.UTC().Format(time.RFC3339), r.lost))
	}
	if r.diskFault != nil {
		problems = append(problems, fmt.Sprintf("cannot write the tenant directory's state, so nothing is claimed: %v", r.diskFault))
	}
	if r.ledger != nil {
		problems = append(problems, r.ledger.Stopped()...)
	}
	return problems
}

// Problems implements tenants.Directory.
func (r *Replica) Problems() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var problems []string
	if r.damaged != "" {
		problems = append(problems, r.damaged)
	}
	if r.ledger != nil {
		problems = append(problems, r.ledger.Problems(time.Now())...)
	}
	return problems
}
