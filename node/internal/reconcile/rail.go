package reconcile

import (
	"context"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/config"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
)

// Bounds of the worker of a rail.
const (
	verifyEvery  = time.Minute
	firstRetry   = 100 * time.Millisecond
	longestRetry = 2 * time.Second
	switchBound  = 5 * time.Second
	routesBound  = 3 * time.Second
)

// due says what a pass must look at as a whole, and why; empty: only what has changed since the last one.
type due struct{ flows, routes string }

func (d due) and(other due) due {
	if d.flows == "" {
		d.flows = other.flows
	}
	if d.routes == "" {
		d.routes = other.routes
	}
	return d
}

// rail is one rail's worker: passes over it run one after the other, and everyone who asks while one runs is served
// together by the next.
type rail struct {
	plan.Rail
	configured config.Rail
	reconciler *Reconciler
	wake       chan struct{}

	mutex   sync.Mutex
	waiters []chan *outcome
	jobs    []func(context.Context)
	due     due
	seen    seen
	stopped bool

	// The rest is the worker's alone. last and announced are nil where they are not known.
	last      applied
	announced prefixes
	// left: it is retired, and nothing of it is there any more.
	left bool
}

// seen of a rail by its last pass.
type seen struct {
	outcome *outcome
	at      time.Time
	// flows wanted, all of them, and by an attachment's number.
	flows    int
	byNumber map[uint16]int
	routes   int
	// bridgeMAC is the pods' gateway; zero: not known.
	bridgeMAC attachment.MAC
	// userspace: the bridge's datapath is not the kernel's.
	userspace bool
}

func newRail(reconciler *Reconciler, configured config.Rail) *rail {
	return &rail{
		Rail: configured.Rail, configured: configured, reconciler: reconciler, wake: make(chan struct{}, 1),
		due: due{"start", "start"},
	}
}

// kick asks for a pass without waiting for it.
func (r *rail) kick(more due) {
	r.mutex.Lock()
	r.due = r.due.and(more)
	r.mutex.Unlock()
	r.rouse()
}

// ask for a pass that starts after now, and wait for its outcome.
func (r *rail) ask(ctx context.Context) (*outcome, error) {
	done := make(chan *outcome, 1)
	r.mutex.Lock()
	if r.stopped {
		r.mutex.Unlock()
		return nil, errStopped
	}
	r.waiters = append(r.waiters, done)
	r.mutex.Unlock()
	r.rouse()
	select {
	case result := <-done:
		if result == nil {
			return nil, errStopped
		}
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// between runs a job between two passes, when nothing of the rail changes, and waits for it.
func (r *rail) between(ctx context.Context, job func(context.Context)) error {
	done := make(chan struct{})
	r.mutex.Lock()
	if r.stopped {
		r.mutex.Unlock()
		return errStopped
	}
	r.jobs = append(r.jobs, func(worker context.Context) {
		defer close(done)
		// Who asked may have gone meanwhile.
		if worker.Err() == nil && ctx.Err() == nil {
			job(ctx)
		}
	})
	r.mutex.Unlock()
	r.rouse()
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rail) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run passes until ctx ends.
func (r *rail) run(ctx context.Context) {
	defer r.stop(ctx)
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	pause := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			// Something has changed: what failed before may do now.
			pause = firstRetry
		case <-retry.C:
		case <-verify.C:
			r.kick(due{"verify", "verify"})
		}
		if r.work(ctx) {
			retry.Stop()
			pause = firstRetry
		} else {
			retry.Reset(pause)
			pause = min(2*pause, longestRetry)
		}
	}
}

// work does the jobs and one pass; false where the pass left something to be done again.
func (r *rail) work(ctx context.Context) bool {
	r.mutex.Lock()
	jobs, waiters, todo := r.jobs, r.waiters, r.due
	r.jobs, r.waiters, r.due = nil, nil, due{}
	r.mutex.Unlock()
	for _, job := range jobs {
		job(ctx)
	}
	began := time.Now()
	result, looked := r.pass(ctx, todo)
	r.mutex.Lock()
	r.seen = looked
	r.mutex.Unlock()
	for _, waiter := range waiters {
		waiter <- result
	}
	r.reconciler.passed(r, result, time.Since(began))
	return result.complete()
}

// stop answers everyone who waits: nothing is going to be done any more.
func (r *rail) stop(ctx context.Context) {
	r.mutex.Lock()
	jobs, waiters := r.jobs, r.waiters
	r.jobs, r.waiters, r.stopped = nil, nil, true
	r.mutex.Unlock()
	for _, job := range jobs {
		job(ctx)
	}
	for _, waiter := range waiters {
		waiter <- nil
	}
}

func (r *rail) lastSeen() seen {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.seen
}

// records of this rail.
func (r *rail) records() []store.Record {
	var held []store.Record
	for _, record := range r.reconciler.store.All() {
		if record.Rail == r.Name {
			held = append(held, record)
		}
	}
	return held
}

// outcome of a pass.
type outcome struct {
	// flows and routes are nil where all that could be done was.
	flows, routes error
	// planned were those whose flows were wanted: claimed, and not leaving.
	planned map[attachment.Key]bool
	// left are those of them that have no flows all the same, and why: most often their port is not there.
	left map[attachment.Key]string
	// announced as far as it is known; nil: it is not.
	announced prefixes
}

func newOutcome() *outcome {
	return &outcome{planned: map[attachment.Key]bool{}, left: map[attachment.Key]string{}}
}

// complete says that nothing is to be tried again.
func (o *outcome) complete() bool {
	return o.flows == nil && o.routes == nil && len(o.left) == 0
}

// served says that an attachment has its flows, where the bridge has any.
func (o *outcome) served(key attachment.Key) bool {
	return o.planned[key] && o.left[key] == ""
}

// failure of an attachment's parts; nil: all of them are real.
func (o *outcome) failure(record store.Record) *Failure {
	if record.Has(attachment.Flows) {
		switch {
		case o.flows != nil:
			return fail(SwitchAway, "look at ovs-vswitchd and the rail's bridge", "the flows cannot be programmed: %w",
				o.flows)
		case !o.planned[record.Key]:
			return fail(DirectoryAway, "see the tenant directory's problems in `railwrightd status`",
				"the addresses are not this attachment's yet in the tenant directory")
		case o.left[record.Key] != "":
			return fail(SwitchAway, "does the plugin before us in the chain add the interface to the bridge?",
				"%s has no flows: %s", record.HostInterface, o.left[record.Key])
		}
	}
	if record.Has(attachment.Routes) && !o.announced.has(record.Prefixes()) {
		cause := o.routes
		if cause == nil {
			cause = errHeldBack
		}
		return fail(RoutesAway, "look at FRR and the rail's table", "the routes cannot be announced: %w", cause)
	}
	return nil
}

// undone says that nothing of the attachment is left: no flow, no route.
func (o *outcome) undone(record store.Record) bool {
	return o.flows == nil && o.announced != nil && !o.announced.hasAny(hostPrefixes(record))
}
