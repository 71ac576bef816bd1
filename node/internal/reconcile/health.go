package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"railwright/node/internal/metrics"
)

const (
	metricsEvery = 15 * time.Second
	mostTroubles = 20
	// readyBound is below the 3 s that the DaemonSet gives a probe.
	readyBound = 2 * time.Second
	// stuckAfter: every loop of ours comes round in far less.
	stuckAfter = 3 * verifyEvery
)

// Problems of the daemon itself, one sentence each: what is in the way of every ADD.
func (r *Reconciler) Problems() []string {
	var problems []string
	select {
	case <-r.started:
	default:
		problems = append(problems, "railwrightd is starting: the tenant directory is being asked for the stored attachments")
	}
	if err := r.store.Probe(); err != nil {
		problems = append(problems, fmt.Sprintf("attachments cannot be stored: %v", err))
	}
	problems = append(problems, r.lacking()...)
	return append(problems, r.directory.Stopped()...)
}

// Notes of single tenants, records and addresses, one sentence each: others are served all the same.
func (r *Reconciler) Notes() []string { return r.directory.Problems() }

// troubles of single attachments of a rail: no reason to refuse others.
func (r *rail) troubles() []string {
	var problems []string
	for _, record := range r.records() {
		if record.Leaving() {
			problems = append(problems, fmt.Sprintf("%s is still being undone", record.Key))
			continue
		}
		if err := r.reconciler.claims.refusedOf(record.Key); err != nil {
			problems = append(problems, fmt.Sprintf("%s has no flows: %v", record.Key, err))
		}
		if reason := r.reconciler.garbage.unseenOf(record.Key); reason != "" {
			problems = append(problems, fmt.Sprintf("whether the pod of %s lives cannot be told: %s", record.Key, reason))
		}
	}
	if more := len(problems) - mostTroubles; more > 0 {
		problems = append(problems[:mostTroubles], fmt.Sprintf("and %d more like these", more))
	}
	return problems
}

// Ready is of metrics.Health: whether an ADD could be served on every rail. What could not be looked at is not ready.
func (r *Reconciler) Ready() []string {
	select {
	case <-r.started:
	default:
		return []string{"railwrightd is starting"}
	}
	lacking := append(r.lacking(), r.directory.Stopped()...)
	if err := r.store.Probe(); err != nil {
		lacking = append(lacking, err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyBound)
	defer cancel()
	for _, problems := range askRails(r.inOrder(), func(rail *rail) []string { return rail.unready(ctx) }) {
		lacking = append(lacking, problems...)
	}
	slices.Sort(lacking)
	return lacking
}

// lacking rights of this process.
func (r *Reconciler) lacking() []string {
	if r.rights == nil {
		return nil
	}
	return r.rights()
}

// unready says what is in the way of an ADD on this rail.
func (r *rail) unready(ctx context.Context) []string {
	var problems []string
	problem := func(format string, values ...any) {
		problems = append(problems, fmt.Sprintf("rail %s: %s", r.Name, fmt.Sprintf(format, values...)))
	}
	switch last := r.lastSeen().outcome; {
	case last == nil:
		problem("it was not looked at yet")
	case last.flows != nil:
		problem("%v", last.flows)
	case last.announced == nil:
		problem("what is announced cannot be looked at: %v", last.routes)
	}
	if up, err := r.reconciler.links.Up(r.Uplink); err != nil {
		problem("uplink %s: %v", r.Uplink, err)
	} else if !up {
		problem("uplink %s has no carrier", r.Uplink)
	}
	if err := r.mixed(); err != nil {
		problem("%v", err)
	}
	if session, err := r.reconciler.announcer.Session(ctx, r.Rail); err != nil {
		problem("BGP: %v", err)
	} else if !session.Established {
		problem("BGP with %s is %s", session.Peer, session.State)
	}
	return problems
}

// Alive is of metrics.Health: whether our own loops come round.
func (r *Reconciler) Alive() []string {
	var problems []string
	select {
	case <-r.started:
	default:
		return nil
	}
	if since := time.Since(time.Unix(0, r.tended.Load())); r.tended.Load() != 0 && since > stuckAfter {
		problems = append(problems, fmt.Sprintf("the housekeeping has not come round for %s", since.Round(time.Second)))
	}
	for _, rail := range r.rails {
		if at := rail.lastSeen().at; !at.IsZero() && time.Since(at) > stuckAfter {
			problems = append(problems, fmt.Sprintf("rail %s was not looked at since %s", rail.Name, at.UTC().Format(time.RFC3339)))
		}
	}
	slices.Sort(problems)
	return problems
}

// keepMetrics looks at what others count, until ctx ends.
func (r *Reconciler) keepMetrics(ctx context.Context) {
	for {
		r.metrics.SetRails(r.measure(ctx))
		r.metrics.Unheeded(len(r.Notes()))
		if !pause(ctx, metricsEvery) {
			return
		}
	}
}

func (r *Reconciler) measure(ctx context.Context) map[string]metrics.Rail {
	cached := r.cachedFlows(ctx)
	rails, all := r.inOrder(), map[string]metrics.Rail{}
	for i, measured := range askRails(rails, func(rail *rail) metrics.Rail { return rail.measure(ctx) }) {
		measured.CachedFlows = cached[rails[i].Name]
		all[rails[i].Name] = measured
	}
	return all
}

func (r *rail) measure(ctx context.Context) metrics.Rail {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	last := r.lastSeen()
	measured := metrics.Rail{FlowsWanted: last.flows, SwitchReady: last.outcome != nil && last.outcome.flows == nil}
	for _, record := range r.records() {
		measured.Attachments++
		measured.RoutesWanted += len(record.Prefixes())
	}
	if last.outcome != nil && last.outcome.announced != nil {
		measured.RoutesAnnounced = &last.routes
	}
	if counted := r.tally(ctx); counted.flows != nil {
		installed := counted.installed()
		measured.FlowsInstalled, measured.Dropped = &installed, counted.all()
	}
	if session, err := r.reconciler.announcer.Session(ctx, r.Rail); err == nil {
		measured.SessionEstablished = &session.Established
	}
	return measured
}

// cachedFlows of the datapath by rail and by where they run; nil where they cannot be looked at.
func (r *Reconciler) cachedFlows(ctx context.Context) map[string]map[string]int {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	flows, err := r.openVSwitch.Datapath(ctx)
	if err != nil {
		r.log.Debug("the datapath's flows cannot be looked at", "error", err)
		return nil
	}
	railOf := map[string]string{}
	count := map[string]map[string]int{}
	for name, rail := range r.rails {
		railOf[rail.Uplink] = name
		count[name] = map[string]int{"hardware": 0, "software": 0}
	}
	for _, record := range r.store.All() {
		railOf[record.HostInterface] = record.Rail
	}
	for _, flow := range flows {
		of, ours := count[railOf[flow.InPort]]
		switch {
		case !ours:
		case flow.Offloaded:
			of["hardware"]++
		default:
			of["software"]++
		}
	}
	return count
}
