package reconcile

import (
	"context"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/config"
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

func (due due) and(other due) due {
	if due.flows == "" {
		due.flows = other.flows
	}
	if due.routes == "" {
		due.routes = other.routes
	}
	return due
}

// rail is one rail's worker: passes over it run one after the other, and everyone who asks while one runs is served
// together by the next.
type rail struct {
	config.Rail
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
}

func newRail(reconciler *Reconciler, configured config.Rail) *rail {
	return &rail{
		Rail: configured, reconciler: reconciler, wake: make(chan struct{}, 1), due: due{"start", "start"},
	}
}

// kick asks for a pass without waiting for it.
func (rail *rail) kick(more due) {
	rail.mutex.Lock()
	rail.due = rail.due.and(more)
	rail.mutex.Unlock()
	rail.rouse()
}

// ask for a pass that starts after now, and wait for its outcome.
func (rail *rail) ask(ctx context.Context) (*outcome, error) {
	told := make(chan *outcome, 1)
	rail.mutex.Lock()
	if rail.stopped {
		rail.mutex.Unlock()
		return nil, errStopped
	}
	rail.waiters = append(rail.waiters, told)
	rail.mutex.Unlock()
	rail.rouse()
	select {
	case result := <-told:
		if result == nil {
			return nil, errStopped
		}
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// between runs a job between two passes, when nothing of the rail changes, and waits for it.
func (rail *rail) between(ctx context.Context, job func(context.Context)) error {
	done := make(chan struct{})
	rail.mutex.Lock()
	if rail.stopped {
		rail.mutex.Unlock()
		return errStopped
	}
	rail.jobs = append(rail.jobs, func(worker context.Context) {
		defer close(done)
		// Who asked may have gone meanwhile.
		if worker.Err() == nil && ctx.Err() == nil {
			job(ctx)
		}
	})
	rail.mutex.Unlock()
	rail.rouse()
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (rail *rail) rouse() {
	select {
	case rail.wake <- struct{}{}:
	default:
	}
}

// run passes until ctx ends.
func (rail *rail) run(ctx context.Context) {
	defer rail.stop(ctx)
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	pause := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-rail.wake:
			// Something has changed: what failed before may do now.
			pause = firstRetry
		case <-retry.C:
		case <-verify.C:
			rail.kick(due{"verify", "verify"})
		}
		if rail.work(ctx) {
			retry.Stop()
			pause = firstRetry
		} else {
			retry.Reset(pause)
			pause = min(2*pause, longestRetry)
		}
	}
}

// work does the jobs and one pass; false where the pass left something to be done again.
func (rail *rail) work(ctx context.Context) bool {
	rail.mutex.Lock()
	jobs, waiters, todo := rail.jobs, rail.waiters, rail.due
	rail.jobs, rail.waiters, rail.due = nil, nil, due{}
	rail.mutex.Unlock()
	for _, job := range jobs {
		job(ctx)
	}
	began := time.Now()
	result, looked := rail.pass(ctx, todo)
	rail.mutex.Lock()
	rail.seen = looked
	rail.mutex.Unlock()
	for _, waiter := range waiters {
		waiter <- result
	}
	rail.reconciler.passed(rail, result, time.Since(began))
	return result.complete()
}

// stop answers everyone who waits: nothing is going to be done any more.
func (rail *rail) stop(ctx context.Context) {
	rail.mutex.Lock()
	jobs, waiters := rail.jobs, rail.waiters
	rail.jobs, rail.waiters, rail.stopped = nil, nil, true
	rail.mutex.Unlock()
	for _, job := range jobs {
		job(ctx)
	}
	for _, waiter := range waiters {
		waiter <- nil
	}
}

func (rail *rail) lastSeen() seen {
	rail.mutex.Lock()
	defer rail.mutex.Unlock()
	return rail.seen
}

// records of this rail.
func (rail *rail) records() []store.Record {
	var own []store.Record
	for _, record := range rail.reconciler.store.All() {
		if record.Rail == rail.Name {
			own = append(own, record)
		}
	}
	return own
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
func (outcome *outcome) complete() bool {
	return outcome.flows == nil && outcome.routes == nil && len(outcome.left) == 0
}

// served says that an attachment has its flows, where the bridge has any.
func (outcome *outcome) served(key attachment.Key) bool {
	return outcome.planned[key] && outcome.left[key] == ""
}

// failure of an attachment's parts; nil: all of them are real.
func (outcome *outcome) failure(record store.Record) *Failure {
	if record.Has(attachment.Flows) {
		switch {
		case outcome.flows != nil:
			return fail(SwitchAway, "look at ovs-vswitchd and the rail's bridge", "the flows cannot be programmed: %w",
				outcome.flows)
		case !outcome.planned[record.Key]:
			return fail(DirectoryAway, "see the tenant directory's problems in `railwrightd status`",
				"the addresses are not this attachment's yet in the tenant directory")
		case outcome.left[record.Key] != "":
			return fail(SwitchAway, "does the plugin before us in the chain add the interface to the bridge?",
				"%s has no flows: %s", record.HostInterface, outcome.left[record.Key])
		}
	}
	if record.Has(attachment.Routes) && !outcome.announced.has(record.Prefixes()) {
		cause := outcome.routes
		if cause == nil {
			cause = errHeldBack
		}
		return fail(RoutesAway, "look at FRR and the rail's table", "the routes cannot be announced: %w", cause)
	}
	return nil
}

// undone says that nothing of the attachment is left: no flow, no route.
func (outcome *outcome) undone(record store.Record) bool {
	return outcome.flows == nil && outcome.announced != nil && !outcome.announced.hasAny(hostPrefixes(record))
}
