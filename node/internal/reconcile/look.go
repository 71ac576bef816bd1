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
)

const (
	lookBound = 3 * time.Second
	// advertisedBound: a CHECK does not wait for a leaf as an ADD does.
	advertisedBound = time.Second
	mostDifferences = 20
)

// Check compares the parts of an attachment with what is there, changing nothing. Empty: no difference.
func (r *Reconciler) Check(ctx context.Context, key attachment.Key, parts []attachment.Part) ([]string, error) {
	if err := r.wait(ctx); err != nil {
		return nil, fail(Busy, "railwrightd is starting; try again", "nothing was looked at: %w", err)
	}
	unlock, err := r.locks.lock(ctx, key)
	if err != nil {
		return nil, fail(Busy, "try again", "the attachment is still being worked on: %w", err)
	}
	defer unlock()
	record, found := r.store.Get(key)
	if !found || record.Leaving() {
		return []string{fmt.Sprintf("nothing is attached as %s", key)}, nil
	}
	var problems []string
	for _, part := range parts {
		if !record.Has(part) {
			problems = append(problems, fmt.Sprintf("%s were not asked for", part))
		}
	}
	if life, reason := r.pods.Life(record.Attachment, record.Boot); life != collect.Alive {
		problems = append(problems, "the pod cannot be seen: "+reason)
	}
	rail := r.rails[record.Rail]
	if rail == nil {
		return append(problems, fmt.Sprintf("rail %s is not configured any more", record.Rail)), nil
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
	return problems[:min(len(problems), mostDifferences)], nil
}

// flowDifferences of the whole bridge: what it lacks for others, as who belongs to which tenant, this pod lacks too.
func (r *rail) flowDifferences(ctx context.Context, record store.Record) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	var problems []string
	var failure error
	err := r.between(ctx, func(ctx context.Context) {
		result := newOutcome()
		planned, err := r.plan(ctx, r.records(), result)
		if err == nil {
			problems, err = r.reconciler.openVSwitch.Differences(ctx, r.Bridge, planned.flows)
		}
		if reason := result.left[record.Key]; reason != "" {
			problems = append([]string{fmt.Sprintf("%s has no flows: %s", record.HostInterface, reason)}, problems...)
		}
		failure = err
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return nil, fail(SwitchAway, "look at ovs-vswitchd and the rail's bridge", "the flows cannot be looked at: %w", err)
	}
	if !r.reconciler.claims.holds(record.Key) {
		problems = append(problems, "the addresses are not this attachment's in the tenant directory")
	}
	return problems, nil
}

func (r *rail) routeDifferences(ctx context.Context, record store.Record) []string {
	listCtx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	listed, err := r.reconciler.announcer.List(listCtx, r.Rail)
	if err != nil {
		return []string{fmt.Sprintf("the routes cannot be looked at: %v", err)}
	}
	if !prefixesOf(listed).has(record.Prefixes()) {
		return []string{fmt.Sprintf("not all of %v is announced", record.Prefixes())}
	}
	if err := r.advertised(ctx, record.Prefixes()); err != nil {
		return []string{fmt.Sprintf("the rail's leaf does not have all of %v: %v", record.Prefixes(), err)}
	}
	return nil
}

func (r *rail) advertised(ctx context.Context, want []netip.Prefix) error {
	ctx, cancel := context.WithTimeout(ctx, advertisedBound)
	defer cancel()
	return r.reconciler.announcer.WaitAdvertised(ctx, r.Rail, want)
}

// Seen is an attachment with what was seen of it.
type Seen struct {
	attachment.Attachment
	FlowsWanted, FlowsInstalled int
	// Advertised to the rail's leaf; false also where that could not be told.
	Advertised bool
	// OpenTenants are those beside its own that it may talk to.
	OpenTenants []string
	// GatewayMAC is zero where it is not known.
	GatewayMAC attachment.MAC
	// Dropped packets of this attachment alone.
	Dropped map[plan.Reason]uint64
	// Counted says whether the bridge could be asked: FlowsInstalled and Dropped say nothing otherwise.
	Counted bool
}

// List all attachments.
func (r *Reconciler) List(ctx context.Context) []Seen {
	records := r.store.All()
	rails, tallies := slices.Collect(maps.Values(r.rails)), map[string]tally{}
	for i, counted := range askRails(rails, func(rail *rail) tally { return rail.tally(ctx) }) {
		tallies[rails[i].Name] = counted
	}
	tenants, _, _ := r.directory.View(r.localTenants())
	all := make([]Seen, len(records))
	index := map[attachment.Key]*Seen{}
	for i, record := range records {
		counted := tallies[record.Rail]
		all[i] = Seen{
			Attachment: record.Attachment, FlowsInstalled: counted.flows[record.Number],
			Dropped: counted.dropped[record.Number], OpenTenants: openTo(record.Tenant, tenants.Pairs),
			Counted: counted.flows != nil,
		}
		index[record.Key] = &all[i]
	}
	atOnce(records, func(record store.Record) {
		rail, position := r.rails[record.Rail], index[record.Key]
		if rail == nil {
			return
		}
		last := rail.lastSeen()
		position.FlowsWanted, position.GatewayMAC = last.byNumber[record.Number], last.bridgeMAC
		position.Advertised = record.Has(attachment.Routes) && rail.advertised(ctx, record.Prefixes()) == nil
	})
	return all
}

// inOrder gives the rails in the order of the configuration; not those that it has no more.
func (r *Reconciler) inOrder() []*rail {
	rails := make([]*rail, 0, len(r.rails))
	for _, configured := range r.config.Rails {
		rails = append(rails, r.rails[configured.Name])
	}
	return rails
}

// askRails looks at all rails at once, since each may take its whole bound. The answers are in the order of the rails.
func askRails[Answer any](rails []*rail, look func(*rail) Answer) []Answer {
	answers := make([]Answer, len(rails))
	var group sync.WaitGroup
	for i, rail := range rails {
		group.Go(func() { answers[i] = look(rail) })
	}
	group.Wait()
	return answers
}

// openTo lists the tenants that pairs open to this one.
func openTo(tenant string, pairs [][2]string) []string {
	var open []string
	for _, pair := range pairs {
		switch tenant {
		case pair[0]:
			open = append(open, pair[1])
		case pair[1]:
			open = append(open, pair[0])
		}
	}
	return open
}

// tally of what a rail's bridge has of ours, by the attachment's number; number 0 is what all share. Its maps are nil
// where the bridge could not be asked.
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
	for cookie, of := range counters {
		number, reason, ours := plan.ParseCookie(cookie)
		if !ours {
			continue
		}
		counted.flows[number] += int(of.Flows)
		if reason.Drops() {
			if counted.dropped[number] == nil {
				counted.dropped[number] = map[plan.Reason]uint64{}
			}
			counted.dropped[number][reason] += of.Packets
		}
	}
	return counted
}

// installed flows, all of them.
func (t tally) installed() int {
	sum := 0
	for _, flows := range t.flows {
		sum += flows
	}
	return sum
}

// all that was dropped, whoever sent it.
func (t tally) all() map[plan.Reason]uint64 {
	sum := map[plan.Reason]uint64{}
	for _, of := range t.dropped {
		for reason, packets := range of {
			sum[reason] += packets
		}
	}
	return sum
}

// RailState is what STATUS says of one rail.
type RailState struct {
	Name                                      string
	SwitchReady, UplinkUp, SessionEstablished bool
	Problems                                  []string
	// Dropped packets of the whole rail; empty where the switch does not tell.
	Dropped map[plan.Reason]uint64
	// Prefixes that the addresses of all its pods are in.
	Prefixes []netip.Prefix
}

// Rails that the network is on, as far as its attachments show; all of them otherwise. Sorted by name.
func (r *Reconciler) Rails(ctx context.Context, network string) []RailState {
	want := map[string]bool{}
	for _, record := range r.store.All() {
		if network != "" && record.Key.Network == network {
			want[record.Rail] = true
		}
	}
	rails := r.inOrder()
	if len(want) > 0 {
		rails = slices.DeleteFunc(rails, func(rail *rail) bool { return !want[rail.Name] })
	}
	states := askRails(rails, func(rail *rail) RailState { return rail.state(ctx) })
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
	last := r.lastSeen().outcome
	switch {
	case err != nil:
		problem("Open vSwitch: %v", err)
	case last == nil:
		problem("Open vSwitch: the bridge %s was not looked at yet", r.Bridge)
	case last.flows != nil:
		problem("Open vSwitch: %v", last.flows)
	default:
		state.SwitchReady = true
		if facts.LeafMAC == (attachment.MAC{}) {
			problem("the leaf's MAC address is not known, nothing can leave the node by %s: %s", r.Uplink, facts.LeafProblem)
		}
	}
	state.UplinkUp, err = r.reconciler.links.Up(r.Uplink)
	if err != nil {
		problem("uplink %s: %v", r.Uplink, err)
	} else if !state.UplinkUp {
		problem("uplink %s has no carrier", r.Uplink)
	}
	if err := r.mixed(); err != nil {
		problem("%v", err)
	}
	session, err := r.reconciler.announcer.Session(ctx, r.Rail)
	state.SessionEstablished = err == nil && session.Established
	if err != nil {
		problem("BGP: %v", err)
	} else if !session.Established {
		problem("BGP with %s is %s", session.Peer, session.State)
	}
	if last != nil && last.routes != nil {
		problem("routes: %v", last.routes)
	}
	// What is wrong with the switch is told above.
	state.Dropped = r.tally(ctx).all()
	state.Problems = append(state.Problems, r.troubles()...)
	return state
}
