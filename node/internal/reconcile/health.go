package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/announce"
	"railwright/node/internal/metrics"
	"railwright/node/internal/pause"
)

const (
	metricsEvery = 15 * time.Second
	// railsEvery is how often the rails are looked at. Two looks must find a rail down before that is reported.
	railsEvery  = time.Second
	maxTroubles = 20
	// readyBound is below the DaemonSet's probe timeout of 3 s.
	readyBound = 2 * time.Second
	// stuckAfter is far above the period of each of our loops.
	stuckAfter = 3 * verifyEvery
)

// Problems returns the problems of the daemon that fail every ADD, a sentence each.
func (r *Reconciler) Problems() []string {
	var problems []string
	select {
	case <-r.started:
	default:
		problems = append(problems, "railwrightd is starting and claiming the addresses of stored attachments")
	}
	if err := r.store.Probe(); err != nil {
		problems = append(problems, fmt.Sprintf("cannot store attachments: %v", err))
	}
	problems = append(problems, r.missingRights()...)
	return append(problems, r.directory.Stopped()...)
}

// Notes returns problems of single tenants, records and addresses, a sentence each. They affect nothing else.
func (r *Reconciler) Notes() []string { return r.directory.Problems() }

// attachmentProblems returns problems of single attachments of the rail. They are no reason to refuse others.
func (r *rail) attachmentProblems() []string {
	var problems []string
	for _, record := range r.records() {
		if record.Leaving() {
			if r.reconciler.isReal(record) {
				problems = append(problems, fmt.Sprintf("%s is still being undone", record.Key))
			}
			continue
		}
		if err := r.reconciler.claims.refusedOf(record.Key); err != nil {
			problems = append(problems, fmt.Sprintf("%s has no flows: %v", record.Key, err))
		}
		if reason := r.reconciler.garbage.unseenOf(record.Key); reason != "" {
			problems = append(problems, fmt.Sprintf("state of the pod of %s is unknown: %s", record.Key, reason))
		}
	}
	if more := len(problems) - maxTroubles; more > 0 {
		problems = append(problems[:maxTroubles], fmt.Sprintf("and %d more like these", more))
	}
	return problems
}

// ReadinessProblems implements metrics.Health. It returns the reasons why an ADD could fail on a rail; unknown state counts as not
// ready.
func (r *Reconciler) ReadinessProblems() []string {
	select {
	case <-r.started:
	default:
		return []string{"railwrightd is starting"}
	}
	lacking := append(r.missingRights(), r.directory.Stopped()...)
	if err := r.store.Probe(); err != nil {
		lacking = append(lacking, err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyBound)
	defer cancel()
	for _, problems := range queryRails(r.configuredRails(), func(rail *rail) []string { return rail.unready(ctx) }) {
		lacking = append(lacking, problems...)
	}
	slices.Sort(lacking)
	return lacking
}

// missingRights returns the rights that this process lacks.
func (r *Reconciler) missingRights() []string {
	if r.rights == nil {
		return nil
	}
	return r.rights()
}

// unready returns the reasons why an ADD could fail on this rail.
func (r *rail) unready(ctx context.Context) []string {
	var problems []string
	problem := func(format string, values ...any) {
		problems = append(problems, fmt.Sprintf("rail %s: %s", r.Name, fmt.Sprintf(format, values...)))
	}
	switch last := r.lastPass().outcome; {
	case last == nil:
		problem("bridge was not checked yet")
	case last.flows != nil:
		problem("%v", last.flows)
	case last.announced == nil:
		problem("cannot list announced routes: %v", last.routes)
	}
	// A rail with two leaves is up as long as one is.
	if up, broken := r.uplinksUp(); !up {
		problem("%s", strings.Join(broken, "; "))
	}
	if err := r.checkHostAddresses(); err != nil {
		problem("%v", err)
	}
	if session, err := r.reconciler.announcer.Session(ctx, r.Rail); err != nil {
		problem("BGP: %v", err)
	} else if !session.Up() {
		problem("%s", strings.Join(sessionProblems(session), "; "))
	}
	return problems
}

// uplinksUp reports whether an uplink of the rail has a carrier, and describes those that have none.
func (r *rail) uplinksUp() (up bool, broken []string) {
	for _, name := range slices.Compact([]string{r.Uplink, cmp.Or(r.Second, r.Uplink)}) {
		carrier, err := r.reconciler.links.Up(name)
		switch {
		case err != nil:
			broken = append(broken, fmt.Sprintf("uplink %s: %v", name, err))
		case !carrier:
			broken = append(broken, fmt.Sprintf("uplink %s has no carrier", name))
		default:
			up = true
		}
	}
	return up, broken
}

// sessionProblems describes the sessions that are not established.
func sessionProblems(session announce.Session) []string {
	var problems []string
	for one := &session; one != nil; one = one.Second {
		if !one.Established {
			problems = append(problems, fmt.Sprintf("BGP with %s is %s", one.Peer, one.State))
		}
	}
	return problems
}

// LivenessProblems returns the daemon's stuck loops. It implements metrics.Health.
func (r *Reconciler) LivenessProblems() []string {
	var problems []string
	select {
	case <-r.started:
	default:
		return nil
	}
	if since := time.Since(time.Unix(0, r.tended.Load())); r.tended.Load() != 0 && since > stuckAfter {
		problems = append(problems, fmt.Sprintf("housekeeping has not run for %s", since.Round(time.Second)))
	}
	for _, rail := range r.rails {
		if at := rail.lastPass().at; !at.IsZero() && time.Since(at) > stuckAfter {
			problems = append(problems, fmt.Sprintf("rail %s was not checked since %s", rail.Name, at.UTC().Format(time.RFC3339)))
		}
	}
	slices.Sort(problems)
	return problems
}

// watchRails tells the cluster which rails are down until ctx ends. A rail that is down for a moment only, as while
// bgpd restarts, is not reported.
func (r *Reconciler) watchRails(ctx context.Context) {
	rails := r.configuredRails()
	var before []bool
	for {
		bound, cancel := context.WithTimeout(ctx, readyBound)
		looks := queryRails(rails, func(rail *rail) []string { return rail.unready(bound) })
		cancel()
		now := make([]bool, len(rails))
		var problems []string
		for i, found := range looks {
			now[i] = len(found) > 0
			down := now[i] && before != nil && before[i]
			r.metrics.SetRailUp(rails[i].Name, !down)
			if down {
				problems = append(problems, found...)
			}
		}
		if before != nil && ctx.Err() == nil && r.node != nil {
			r.node.Report(problems)
		}
		before = now
		if !pause.For(ctx, railsEvery) {
			return
		}
	}
}

// keepMetrics updates the metrics of rails until ctx ends.
func (r *Reconciler) keepMetrics(ctx context.Context) {
	for {
		r.metrics.SetRails(r.measure(ctx))
		r.metrics.SetIgnored(len(r.Notes()))
		r.metrics.SetHeld(r.directory.Held())
		if !pause.For(ctx, metricsEvery) {
			return
		}
	}
}

func (r *Reconciler) measure(ctx context.Context) map[string]metrics.Rail {
	cached := r.cachedFlows(ctx)
	rails, all := r.configuredRails(), map[string]metrics.Rail{}
	for i, measured := range queryRails(rails, func(rail *rail) metrics.Rail { return rail.measure(ctx) }) {
		measured.CachedFlows = cached[rails[i].Name]
		all[rails[i].Name] = measured
	}
	return all
}

func (r *rail) measure(ctx context.Context) metrics.Rail {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	last := r.lastPass()
	measured := metrics.Rail{FlowsWanted: last.flows, SwitchReady: last.outcome != nil && last.outcome.flows == nil}
	for _, record := range r.records() {
		measured.Attachments++
		measured.RoutesWanted += len(record.Prefixes())
	}
	if last.outcome != nil && last.outcome.announced != nil {
		measured.RoutesAnnounced = &last.routes
	}
	if counted := r.tally(ctx); counted.flows != nil {
		installed := counted.countFlows()
		measured.FlowsInstalled, measured.Dropped = &installed, counted.all()
	}
	if session, err := r.reconciler.announcer.Session(ctx, r.Rail); err == nil {
		up := session.Up()
		measured.SessionEstablished = &up
	}
	return measured
}

// cachedFlows counts the datapath's flows by rail and by where they run. It returns nil if they cannot be read.
func (r *Reconciler) cachedFlows(ctx context.Context) map[string]map[string]int {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	flows, err := r.openVSwitch.Datapath(ctx)
	if err != nil {
		r.log.Debug("cannot read the datapath's flows", "error", err)
		return nil
	}
	railOf := map[string]string{}
	count := map[string]map[string]int{}
	for name, rail := range r.rails {
		railOf[rail.Uplink], railOf[cmp.Or(rail.Second, rail.Uplink)] = name, name
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
