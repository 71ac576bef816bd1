package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

var (
	errReplan   = errors.New("all members are needed")
	errStopped  = errors.New("railwrightd is shutting down")
	errHeldBack = errors.New("routes wait for the attachment's flows")
)

// pass makes the rail match the store. It withdraws routes, changes flows, then announces routes: this order never
// shows the fabric an address that the bridge does not serve.
func (r *rail) pass(ctx context.Context, todo due) (*outcome, passResult) {
	records := r.records()
	result := newOutcome()
	looked := passResult{outcome: result, at: time.Now(), byNumber: map[uint16]int{}}
	if r.configured.Retired && len(records) == 0 {
		r.cleanUp(ctx, result)
		return result, looked
	}
	known := r.withdraw(ctx, records, todo.routes, result)
	planned, err := r.plan(ctx, records, r.last == nil || todo.flows != "", result)
	if err == nil && !planned.noBridge {
		err = r.program(ctx, planned, todo.flows)
		if errors.Is(err, errReplan) {
			todo.flows = "change-failed"
			if planned, err = r.plan(ctx, records, true, result); err == nil {
				err = r.program(ctx, planned, todo.flows)
			}
		}
		looked.count(planned)
	}
	result.flows = err
	if err == nil {
		r.setView(planned.change.Version)
		if !planned.members || planned.change.Members == 0 {
			r.view = 0
		}
	} else {
		// The state of the bridge is unknown now.
		r.last, r.view = nil, 0
	}
	if known {
		r.announce(ctx, records, todo.routes, result)
	}
	result.announced = r.announced
	looked.routes = len(r.announced)
	return result, looked
}

// planned holds the flows of a rail without those of members, the change of the directory's view, and facts that pods
// need.
type planned struct {
	flows  []plan.Flow
	change tenants.Change
	// differing is the number of members by which the view differs from that of the flows.
	differing int
	// members reports whether the bridge has flows of members: not if it lets nothing in.
	members   bool
	bridgeMAC attachment.MAC
	userspace bool
	// noBridge reports that a retired rail has no bridge.
	noBridge bool
}

func (s *passResult) count(planned planned) {
	s.flows, s.bridgeMAC, s.userspace = len(planned.flows), planned.bridgeMAC, planned.userspace
	if planned.members {
		s.flows += flowsPerMember * planned.change.Members
	}
	for _, flow := range planned.flows {
		number, _, _ := plan.ParseCookie(flow.Cookie)
		s.byNumber[number]++
	}
}

// flowsPerMember is the number of flows of a member.
const flowsPerMember = 2

// memberFlows returns the flows of members whose tenants have these numbers. Those to remove need none.
func memberFlows(members []plan.Member, numbers map[string]uint32) []plan.Flow {
	flows := make([]plan.Flow, 0, flowsPerMember*len(members))
	for _, member := range members {
		flows = append(flows, plan.MemberFlows(member, numbers[member.Tenant])...)
	}
	return flows
}

// plan computes the flows of the bridge. With whole it takes all members, otherwise those that changed since the last pass.
func (r *rail) plan(ctx context.Context, records []store.Record, whole bool, result *outcome) (planned, error) {
	ctx, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	facts, err := r.reconciler.openVSwitch.Facts(ctx, r.Rail)
	nowhere := r.configured.Retired && errors.Is(err, openvswitch.ErrNoBridge)
	// A rail is often retired because its NIC is gone. Its pods reach nobody, and their flows are removed.
	noUplink := r.configured.Retired && errors.Is(err, openvswitch.ErrNoUplink)
	if err != nil && !nowhere && !noUplink {
		return planned{}, err
	}
	r.checkSessions(ctx, &facts)
	// The view is taken before the flows are computed; a later change causes another pass.
	change := r.reconciler.directory.Since(r.view)
	differing := len(change.Added) + len(change.Removed)
	if whole && !change.Whole {
		change = r.reconciler.directory.Since(0)
	}
	var want []attachment.Attachment
	for _, record := range records {
		if record.Has(attachment.Flows) && r.reconciler.claims.holds(record.Key) {
			want = append(want, record.Attachment)
			result.planned[record.Key] = true
		}
	}
	flows, left := r.planner.Flows(facts, want, plan.Tenants{Numbers: change.Numbers, Pairs: change.Pairs})
	for _, unserved := range left {
		result.unserved[unserved.Key] = unserved.Reason
	}
	return planned{flows, change, differing, facts.Complete(), facts.BridgeMAC, facts.Userspace, nowhere}, nil
}

// checkSessions takes a leaf without a session as down while the other has one: its uplink may have a carrier, and the
// fabric sends nothing by it.
func (r *rail) checkSessions(ctx context.Context, facts *plan.Facts) {
	if r.Second == "" {
		return
	}
	session, err := r.reconciler.announcer.Session(ctx, r.Rail)
	if err != nil || session.Second == nil || session.Established == session.Second.Established {
		return
	}
	facts.LeafDown = facts.LeafDown || !session.Established
	facts.Second.Down = facts.Second.Down || !session.Second.Established
}

// cleanUp removes everything of a retired rail without attachments, then forgets the rail.
func (r *rail) cleanUp(ctx context.Context, result *outcome) {
	result.announced = prefixes{}
	if r.cleaned {
		return
	}
	err := withBound(ctx, func(bound context.Context) error {
		_, err := r.reconciler.openVSwitch.Facts(bound, r.Rail)
		if !errors.Is(err, openvswitch.ErrNoBridge) {
			_, err = r.reconciler.openVSwitch.Replace(bound, r.Bridge, nil)
			return err
		}
		return nil
	})
	result.flows, r.last, r.view = err, nil, 0
	if !r.sync(ctx, nil, result) || err != nil {
		result.announced = r.announced
		return
	}
	if r.reconciler.forget != nil {
		if err := r.reconciler.forget(r.Name); err != nil {
			result.flows = err
			return
		}
	}
	r.cleaned = true
	r.reconciler.log.Info("cleaned up a retired rail", "rail", r.Name)
}

// program changes the bridge by the difference if its flows are known, and replaces all of them otherwise or if a full
// check is due.
func (r *rail) program(ctx context.Context, planned planned, cause string) error {
	now := appliedOf(planned.flows)
	add, remove := r.last.difference(now)
	expected := len(add) + len(remove)
	if planned.change.IsLarge() {
		// The flows of a large tenant take memory and a core, so the rails plan them one after the other.
		r.reconciler.large.Lock()
		defer r.reconciler.large.Unlock()
	}
	// Without all members, or while there may be members that are unknown, only the difference can be programmed.
	known := r.last != nil && (!planned.change.Whole || r.view == 0) && (planned.members || r.view == 0)
	var members tenants.Change
	if planned.members {
		members = planned.change
		expected += flowsPerMember * planned.differing
	}
	if known && cause == "" {
		err := r.change(ctx, add, remove, members)
		if err == nil {
			r.last = now
			reachFailpoints(add, remove)
			return nil
		}
		r.reconciler.log.Warn("cannot change flows; replacing all of them", "rail", r.Name,
			"error", err)
	}
	if planned.members && !planned.change.Whole {
		return errReplan
	}
	repaired, err := r.replace(ctx, slices.Concat(planned.flows, memberFlows(members.Added, members.Numbers)))
	if err != nil {
		return err
	}
	if r.last != nil {
		// Planned changes are not repairs.
		repaired = max(0, repaired-expected)
		reachFailpoints(add, remove)
	}
	r.last = now
	if cause == "" {
		cause = "after-failure"
	}
	r.reconciler.repaired(r, cause, "flows", repaired)
	return nil
}

// replace makes flows the flows of the bridge, and returns how many differed.
func (r *rail) replace(ctx context.Context, flows []plan.Flow) (repaired int, err error) {
	ctx, cancel := context.WithTimeout(ctx, switchBound+time.Duration(len(flows))*flowBound)
	defer cancel()
	return r.reconciler.openVSwitch.Replace(ctx, r.Bridge, flows)
}

// maxBundle limits the members in a bundle, during which ovs-vswitchd does nothing else.
const maxBundle = 4096

// change changes the bridge's flows, with those of members, in one bundle, but for further ones of many new members:
// without these, packets are dropped.
func (r *rail) change(ctx context.Context, add, remove []plan.Flow, members tenants.Change) error {
	remove = append(remove, memberFlows(members.Removed, nil)...)
	for come := members.Added; ; {
		count := min(len(come), maxBundle)
		add, come = append(add, memberFlows(come[:count], members.Numbers)...), come[count:]
		if len(add)+len(remove) == 0 {
			return nil
		}
		err := withBound(ctx, func(bound context.Context) error {
			return r.reconciler.openVSwitch.Change(bound, r.Bridge, add, remove)
		})
		if err != nil || len(come) == 0 {
			return err
		}
		add, remove = nil, nil
	}
}

// withBound calls the switch with a deadline.
func withBound(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	return call(ctx)
}

func reachFailpoints(add, remove []plan.Flow) {
	if len(add) > 0 {
		failpoint.Reach(failpoint.AddFlows)
	}
	if len(remove) > 0 {
		failpoint.Reach(failpoint.DeleteFlows)
	}
}

// withdraw removes routes that are no longer wanted. It returns false if the announced routes are unknown.
func (r *rail) withdraw(ctx context.Context, records []store.Record, cause string, result *outcome) bool {
	ctx, cancel := context.WithTimeout(ctx, routesBound)
	defer cancel()
	if r.announced == nil || cause != "" {
		listed, err := r.reconciler.announcer.List(ctx, r.Rail)
		if err != nil {
			result.routes, r.announced = err, nil
			return false
		}
		r.countForeignChanges(prefixesOf(listed), cause)
	}
	want := prefixes{}
	for _, record := range records {
		for _, prefix := range record.Prefixes() {
			want[prefix] = true
		}
	}
	keep := r.announced.intersect(want)
	if len(keep) == len(r.announced) {
		return true
	}
	if !r.sync(ctx, keep, result) {
		return r.announced != nil
	}
	failpoint.Reach(failpoint.DeleteWithdrawn)
	return true
}

// countForeignChanges counts changes of our routes by other programs since the last look.
func (r *rail) countForeignChanges(listed prefixes, cause string) {
	if r.announced != nil {
		both := len(listed.intersect(r.announced))
		r.reconciler.repaired(r, cause, "routes", len(listed)+len(r.announced)-2*both)
	}
	r.announced = listed
}

// announce adds the routes whose flows are in place. Announced routes stay even if the bridge is down: it comes back
// sooner than the fabric would learn the route again.
func (r *rail) announce(ctx context.Context, records []store.Record, cause string, result *outcome) {
	ctx, cancel := context.WithTimeout(ctx, routesBound)
	defer cancel()
	want := prefixes{}
	for _, record := range records {
		served := !record.Has(attachment.Flows) ||
			result.flows == nil && result.served(record.Key)
		served = served && r.reconciler.claims.holds(record.Key)
		for _, prefix := range record.Prefixes() {
			if served || r.announced[prefix] {
				want[prefix] = true
			}
		}
	}
	if cause == "" && len(want) == len(r.announced) && len(want.intersect(r.announced)) == len(want) {
		return
	}
	more := len(want) > len(r.announced)
	if r.sync(ctx, want.intersect(want), result) && more {
		failpoint.Reach(failpoint.AddRoutes)
	}
}

// sync makes want the announced routes. After a failure it lists the routes, because some may have changed.
func (r *rail) sync(ctx context.Context, want []netip.Prefix, result *outcome) bool {
	_, _, err := r.reconciler.announcer.Sync(ctx, r.Rail, want)
	if err == nil {
		r.announced = prefixesOf(want)
		return true
	}
	result.routes = err
	r.announced = nil
	if listed, listErr := r.reconciler.announcer.List(ctx, r.Rail); listErr == nil {
		r.announced = prefixesOf(listed)
	}
	return false
}

// hostPrefixes returns the routes of an attachment regardless of its parts.
func hostPrefixes(record store.Record) []netip.Prefix {
	all := record.Attachment
	all.Part = []attachment.Part{attachment.Routes}
	return all.Prefixes()
}
