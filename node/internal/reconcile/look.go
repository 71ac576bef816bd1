package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

const (
	lookBound = 3 * time.Second
	// advertisedBound is short, because a CHECK does not wait for a leaf as an ADD does.
	advertisedBound = time.Second
	maxDifferences  = 20
)

// Check compares the parts of an attachment with the actual state and returns the differences. It changes nothing.
func (r *Reconciler) Check(ctx context.Context, key attachment.Key, parts []attachment.Part) ([]string, error) {
	if err := r.wait(ctx); err != nil {
		return nil, fail(Busy, "railwrightd is starting; try again", "request not started: %w", err)
	}
	unlock, err := r.locks.lock(ctx, key)
	if err != nil {
		return nil, fail(Busy, "try again", "attachment is in use by another request: %w", err)
	}
	defer unlock()
	record, found := r.store.Get(key)
	if !found || record.Leaving() {
		return []string{fmt.Sprintf("no attachment %s", key)}, nil
	}
	var problems []string
	for _, part := range parts {
		if !record.Has(part) {
			problems = append(problems, fmt.Sprintf("%s were not requested", part))
		}
	}
	if life, reason := r.pods.Life(record.Attachment, record.Boot); life != collect.Alive {
		problems = append(problems, "pod is not visible: "+reason)
	}
	rail := r.rails[record.Rail]
	if rail == nil {
		return append(problems, fmt.Sprintf("rail %s is no longer configured", record.Rail)), nil
	}
	if slices.Contains(parts, attachment.Flows) && record.Has(attachment.Flows) {
		different, err := rail.flowDifferences(ctx, record)
		if err != nil {
			return nil, err
		}
		problems = append(problems, different...)
	}
	if slices.Contains(parts, attachment.Routes) && record.Has(attachment.Routes) {
		problems = append(problems, rail.routeDifferences(ctx, record)...)
	}
	return problems[:min(len(problems), maxDifferences)], nil
}

// flowDifferences compares the whole bridge: flows that are missing for others, such as memberships of tenants, affect
// this pod too.
func (r *rail) flowDifferences(ctx context.Context, record store.Record) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBound+time.Duration(r.lastPass().flows)*flowBound)
	defer cancel()
	var problems []string
	var failure error
	err := r.between(ctx, func(ctx context.Context) {
		result := newOutcome()
		planned, err := r.plan(ctx, r.records(), true, result)
		if err == nil {
			flows := planned.flows
			if planned.members {
				flows = append(flows, memberFlows(planned.change.Added, planned.change.Numbers)...)
			}
			problems, err = r.reconciler.openVSwitch.Differences(ctx, r.Bridge, flows)
		}
		if reason := result.unserved[record.Key]; reason != "" {
			problems = append([]string{fmt.Sprintf("%s has no flows: %s", record.HostInterface, reason)}, problems...)
		}
		failure = err
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return nil, fail(SwitchUnavailable, "check ovs-vswitchd and the rail's bridge", "compare flows: %w", err)
	}
	if !r.reconciler.claims.holds(record.Key) {
		problems = append(problems, "the tenant directory does not list the addresses as this attachment's")
	}
	return problems, nil
}

func (r *rail) routeDifferences(ctx context.Context, record store.Record) []string {
	listCtx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	listed, err := r.reconciler.announcer.List(listCtx, r.Rail)
	if err != nil {
		return []string{fmt.Sprintf("list routes: %v", err)}
	}
	if !prefixesOf(listed).hasAll(record.Prefixes()) {
		return []string{fmt.Sprintf("not all of %v are announced", record.Prefixes())}
	}
	if err := r.advertised(ctx, record.Prefixes()); err != nil {
		return []string{fmt.Sprintf("not all of %v were sent to the rail's leaf: %v", record.Prefixes(), err)}
	}
	return nil
}

func (r *rail) advertised(ctx context.Context, want []netip.Prefix) error {
	ctx, cancel := context.WithTimeout(ctx, advertisedBound)
	defer cancel()
	return r.reconciler.announcer.WaitAdvertised(ctx, r.Rail, want)
}

// Observed is an attachment with its observed state.
type Observed struct {
	attachment.Attachment
	FlowsWanted, FlowsInstalled int
	// Advertised reports whether the leaf was sent the routes. It is false if that is unknown.
	Advertised bool
	// OpenTenants are the other tenants that it may communicate with.
	OpenTenants []string
	// GatewayMAC is zero if unknown.
	GatewayMAC attachment.MAC
	// Dropped counts dropped packets of this attachment only.
	Dropped map[plan.Reason]uint64
	// Counted reports whether the bridge could be read. If not, FlowsInstalled and Dropped are meaningless.
	Counted bool
}

// List returns all attachments. One that leaves is listed while flows or routes of it may exist: that its addresses are
// reserved for a while is nothing that a pod has.
func (r *Reconciler) List(ctx context.Context) []Observed {
	records := slices.DeleteFunc(r.store.All(), func(record store.Record) bool { return !r.isReal(record) })
	rails, tallies := slices.Collect(maps.Values(r.rails)), map[string]tally{}
	for i, counted := range queryRails(rails, func(rail *rail) tally { return rail.tally(ctx) }) {
		tallies[rails[i].Name] = counted
	}
	pairs := r.directory.Since(r.directory.Version()).Pairs
	all := make([]Observed, len(records))
	index := map[attachment.Key]*Observed{}
	for i, record := range records {
		counted := tallies[record.Rail]
		all[i] = Observed{
			Attachment: record.Attachment, FlowsInstalled: counted.flows[record.Number],
			Dropped: counted.dropped[record.Number], OpenTenants: peersOf(record.Tenant, pairs),
			Counted: counted.flows != nil,
		}
		all[i].Tenant = tenants.Display(record.Tenant)
		index[record.Key] = &all[i]
	}
	forEachRecord(records, func(record store.Record) {
		rail, observed := r.rails[record.Rail], index[record.Key]
		if rail == nil {
			return
		}
		last := rail.lastPass()
		observed.FlowsWanted, observed.GatewayMAC = last.byNumber[record.Number], last.bridgeMAC
		observed.Advertised = record.Has(attachment.Routes) && rail.advertised(ctx, record.Prefixes()) == nil
	})
	return all
}

// configuredRails returns the configured rails in the order of the configuration.
func (r *Reconciler) configuredRails() []*rail {
	rails := make([]*rail, 0, len(r.rails))
	for _, configured := range r.config.Rails {
		rails = append(rails, r.rails[configured.Name])
	}
	return rails
}

// queryRails calls look for all rails concurrently, since each may take its whole deadline, and returns the results in
// order.
func queryRails[Answer any](rails []*rail, look func(*rail) Answer) []Answer {
	answers := make([]Answer, len(rails))
	var group sync.WaitGroup
	for i, rail := range rails {
		group.Go(func() { answers[i] = look(rail) })
	}
	group.Wait()
	return answers
}

// peersOf returns the tenants that are peered with the tenant.
func peersOf(tenant string, pairs [][2]string) []string {
	var open []string
	for _, pair := range pairs {
		switch tenant {
		case pair[0]:
			open = append(open, tenants.Display(pair[1]))
		case pair[1]:
			open = append(open, tenants.Display(pair[0]))
		}
	}
	return open
}

// tally counts our flows and drops on a bridge by attachment number. Number 0 is shared by all. The maps are nil if the
// bridge could not be read.
type tally struct {
	flows   map[uint16]int
	dropped map[uint16]map[plan.Reason]uint64
}

func (r *rail) tally(ctx context.Context) tally {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	counters, err := r.reconciler.openVSwitch.Counters(ctx, r.Bridge)
	if err != nil {
		return tally{}
	}
	counted := tally{map[uint16]int{}, map[uint16]map[plan.Reason]uint64{}}
	for cookie, count := range counters {
		number, reason, ours := plan.ParseCookie(cookie)
		if !ours {
			continue
		}
		counted.flows[number] += int(count.Flows)
		if reason.Drops() {
			if counted.dropped[number] == nil {
				counted.dropped[number] = map[plan.Reason]uint64{}
			}
			counted.dropped[number][reason] += count.Packets
		}
	}
	return counted
}

// countFlows returns the number of all flows.
func (t tally) countFlows() int {
	sum := 0
	for _, flows := range t.flows {
		sum += flows
	}
	return sum
}

// all sums the drops of all attachments.
func (t tally) all() map[plan.Reason]uint64 {
	sum := map[plan.Reason]uint64{}
	for _, counts := range t.dropped {
		for reason, packets := range counts {
			sum[reason] += packets
		}
	}
	return sum
}

// RailState is the state of a rail for STATUS.
type RailState struct {
	Name                                      string
	SwitchReady, UplinkUp, SessionEstablished bool
	Problems                                  []string
	// Dropped counts dropped packets of the whole rail. It is empty if unknown.
	Dropped map[plan.Reason]uint64
	// Prefixes contain the addresses of all pods of the rail.
	Prefixes []netip.Prefix
}

// Rails returns the state of the rails that the network's attachments use, or of all rails if it has none, sorted by
// name.
func (r *Reconciler) Rails(ctx context.Context, network string) []RailState {
	want := map[string]bool{}
	for _, record := range r.store.All() {
		if network != "" && record.Key.Network == network {
			want[record.Rail] = true
		}
	}
	rails := r.configuredRails()
	if len(want) > 0 {
		rails = slices.DeleteFunc(rails, func(rail *rail) bool { return !want[rail.Name] })
	}
	states := queryRails(rails, func(rail *rail) RailState { return rail.state(ctx) })
	slices.SortFunc(states, func(a, other RailState) int { return strings.Compare(a.Name, other.Name) })
	return states
}

func (r *rail) state(ctx context.Context) RailState {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	state := RailState{Name: r.Name, Prefixes: r.configured.Prefixes}
	problem := func(format string, values ...any) {
		state.Problems = append(state.Problems, fmt.Sprintf(format, values...))
	}
	facts, err := r.reconciler.openVSwitch.Facts(ctx, r.Rail)
	last := r.lastPass().outcome
	switch {
	case err != nil:
		problem("Open vSwitch: %v", err)
	case last == nil:
		problem("Open vSwitch: bridge %s was not checked yet", r.Bridge)
	case last.flows != nil:
		problem("Open vSwitch: %v", last.flows)
	default:
		state.SwitchReady = true
		if facts.LeafMAC == (attachment.MAC{}) {
			problem("MAC address of the leaf is unknown, so nothing leaves the node by %s: %s", r.Uplink, facts.LeafProblem)
		}
	}
	up, broken := r.uplinksUp()
	state.UplinkUp, state.Problems = up, append(state.Problems, broken...)
	if err := r.checkHostAddresses(); err != nil {
		problem("%v", err)
	}
	session, err := r.reconciler.announcer.Session(ctx, r.Rail)
	state.SessionEstablished = err == nil && session.Up()
	if err != nil {
		problem("BGP: %v", err)
	} else {
		state.Problems = append(state.Problems, sessionProblems(session)...)
	}
	if last != nil && last.routes != nil {
		problem("routes: %v", last.routes)
	}
	// Errors of the switch are already in Problems.
	state.Dropped = r.tally(ctx).all()
	state.Problems = append(state.Problems, r.attachmentProblems()...)
	return state
}
