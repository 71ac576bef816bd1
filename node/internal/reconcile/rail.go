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

// Intervals and deadlines of a rail's worker.
const (
	verifyEvery  = time.Minute
	firstRetry   = 100 * time.Millisecond
	longestRetry = 2 * time.Second
	switchBound  = 5 * time.Second
	// flowBound is what a comparison of all flows may take longer for each.
	flowBound = 500 * time.Microsecond
	// verifyPause is the least pause between verifications, in times that the last one took.
	verifyPause = 30
	routesBound = 3 * time.Second
)

// due names what a pass must check completely, with the cause. Empty means only what changed since the last pass.
type due struct {
	flows, routes string
	// pass means that more may have changed than the tenant directory.
	pass bool
}

func (d due) merge(other due) due {
	if d.flows == "" {
		d.flows = other.flows
	}
	if d.routes == "" {
		d.routes = other.routes
	}
	d.pass = d.pass || other.pass
	return d
}

// rail is the worker of a rail. Its passes run one after the other; all requests that arrive during a pass share the
// next one.
type rail struct {
	plan.Rail
	configured config.Rail
	reconciler *Reconciler
	wake       chan struct{}

	mutex   sync.Mutex
	waiters []chan *outcome
	jobs    []func(context.Context)
	due     due
	result  passResult
	stopped bool
	// implemented is the view of the tenant directory that the flows implement; advanced is closed when it changes.
	implemented uint64
	advanced    chan struct{}

	// The fields below belong to the worker's goroutine. last has the flows without those of members, and view is the one
	// that those implement. last and announced are nil if unknown, and view is 0 if the bridge has no member.
	last      applied
	view      uint64
	announced prefixes
	planner   *plan.Planner
	// cleaned reports that the rail is retired and cleaned up.
	cleaned bool
}

// passResult is the result of a rail's last pass.
type passResult struct {
	outcome *outcome
	at      time.Time
	// flows is the number of wanted flows; byNumber splits it by attachment number.
	flows    int
	byNumber map[uint16]int
	routes   int
	// bridgeMAC is the pods' gateway. Zero means unknown.
	bridgeMAC attachment.MAC
	// userspace reports that the bridge's datapath runs outside the kernel.
	userspace bool
}

func newRail(reconciler *Reconciler, configured config.Rail) *rail {
	return &rail{
		Rail: configured.Rail, configured: configured, reconciler: reconciler, wake: make(chan struct{}, 1),
		planner: plan.NewPlanner(configured.Rail), advanced: make(chan struct{}),
		due: due{"start", "start", true},
	}
}

// kick requests a pass without waiting for it.
func (r *rail) kick(more due) {
	more.pass = true
	r.mutex.Lock()
	r.due = r.due.merge(more)
	r.mutex.Unlock()
	r.wakeUp()
}

// requestPass requests a pass that starts after now and waits for its outcome.
func (r *rail) requestPass(ctx context.Context) (*outcome, error) {
	done := make(chan *outcome, 1)
	r.mutex.Lock()
	if r.stopped {
		r.mutex.Unlock()
		return nil, errStopped
	}
	r.waiters = append(r.waiters, done)
	r.mutex.Unlock()
	r.wakeUp()
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

// between runs a job between two passes, while nothing of the rail changes, and waits for it.
func (r *rail) between(ctx context.Context, job func(context.Context)) error {
	done := make(chan struct{})
	r.mutex.Lock()
	if r.stopped {
		r.mutex.Unlock()
		return errStopped
	}
	r.jobs = append(r.jobs, func(worker context.Context) {
		defer close(done)
		// The caller may have given up.
		if worker.Err() == nil && ctx.Err() == nil {
			job(ctx)
		}
	})
	r.mutex.Unlock()
	r.wakeUp()
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rail) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run passes until ctx ends.
func (r *rail) run(ctx context.Context) {
	defer r.stop(ctx)
	verify := time.NewTimer(verifyEvery)
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	pause, verifies := firstRetry, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			// Something changed, so a failed pass may succeed now.
			pause = firstRetry
		case <-retry.C:
			r.kick(due{})
		case <-verify.C:
			r.kick(due{flows: "verify", routes: "verify"})
			verifies = true
		}
		began := time.Now()
		done := r.work(ctx)
		if verifies {
			// Many flows take seconds of a core and of ovs-vswitchd.
			verify.Reset(max(verifyEvery, verifyPause*time.Since(began)))
			verifies = false
		}
		if done {
			retry.Stop()
			pause = firstRetry
		} else {
			retry.Reset(pause)
			pause = min(2*pause, longestRetry)
		}
	}
}

// work runs the jobs and one pass. It returns false if the pass must be repeated.
func (r *rail) work(ctx context.Context) bool {
	r.mutex.Lock()
	jobs, waiters, todo := r.jobs, r.waiters, r.due
	r.jobs, r.waiters, r.due = nil, nil, due{}
	r.mutex.Unlock()
	// After an incomplete pass another one is due, which a change of the directory must not put off.
	last := r.lastPass().outcome
	if !todo.pass && len(jobs)+len(waiters) == 0 && last != nil && last.complete() && r.catchUp(ctx) {
		return true
	}
	for _, job := range jobs {
		job(ctx)
	}
	began := time.Now()
	result, looked := r.pass(ctx, todo)
	r.mutex.Lock()
	r.result = looked
	r.mutex.Unlock()
	for _, waiter := range waiters {
		waiter <- result
	}
	r.reconciler.recordPass(r, result, time.Since(began))
	return result.complete()
}

// stop ends all waiting requests.
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

func (r *rail) lastPass() passResult {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.result
}

// records returns the records of this rail.
func (r *rail) records() []store.Record {
	var held []store.Record
	for _, record := range r.reconciler.store.All() {
		if record.Rail == r.Name {
			held = append(held, record)
		}
	}
	return held
}

// outcome is the result of a pass.
type outcome struct {
	// flows and routes are the errors of the pass.
	flows, routes error
	// planned holds the attachments whose flows were wanted: claimed and not leaving.
	planned map[attachment.Key]bool
	// unserved holds the reasons why planned attachments got no flows, most often a missing port.
	unserved map[attachment.Key]string
	// announced holds the announced routes, or nil if unknown.
	announced prefixes
}

func newOutcome() *outcome {
	return &outcome{planned: map[attachment.Key]bool{}, unserved: map[attachment.Key]string{}}
}

// complete reports whether the pass left nothing to retry.
func (o *outcome) complete() bool {
	return o.flows == nil && o.routes == nil && len(o.unserved) == 0
}

// served reports whether an attachment got its flows, provided that the bridge has any.
func (o *outcome) served(key attachment.Key) bool {
	return o.planned[key] && o.unserved[key] == ""
}

// failure returns why an attachment's parts are not real, or nil.
func (o *outcome) failure(record store.Record) *Failure {
	if record.Has(attachment.Flows) {
		switch {
		case o.flows != nil:
			return fail(SwitchUnavailable, "check ovs-vswitchd and the rail's bridge", "program flows: %w",
				o.flows)
		case !o.planned[record.Key]:
			return fail(DirectoryUnavailable, "check the tenant directory's problems in `railwrightd status`",
				"the tenant directory does not list the addresses as this attachment's yet")
		case o.unserved[record.Key] != "":
			return fail(SwitchUnavailable, "check that an earlier plugin of the chain adds the interface to the bridge",
				"%s has no flows: %s", record.HostInterface, o.unserved[record.Key])
		}
	}
	if record.Has(attachment.Routes) && !o.announced.hasAll(record.Prefixes()) {
		cause := o.routes
		if cause == nil {
			cause = errHeldBack
		}
		return fail(RoutingUnavailable, "check FRR and the rail's table", "announce routes: %w", cause)
	}
	return nil
}

// undone reports whether the attachment has no flow and no route left.
func (o *outcome) undone(record store.Record) bool {
	return o.flows == nil && !o.planned[record.Key] && o.announced != nil && !o.announced.hasAny(hostPrefixes(record))
}
