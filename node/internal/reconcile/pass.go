package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
)

var (
	errStopped  = errors.New("railwrightd is ending")
	errHeldBack = errors.New("they wait for the attachment's flows")
)

// pass makes the rail what the store says, in the order that never shows an address to the fabric which the bridge does
// not serve: routes are withdrawn, flows changed, routes announced.
func (r *rail) pass(ctx context.Context, todo due) (*outcome, seen) {
	records := r.records()
	result := newOutcome()
	looked := seen{outcome: result, at: time.Now(), byNumber: map[uint16]int{}}
	if r.configured.Retired && len(records) == 0 {
		r.leave(ctx, result)
		return result, looked
	}
	known := r.withdraw(ctx, records, todo.routes, result)
	planned, err := r.plan(ctx, records, result)
	if err == nil && !planned.nowhere {
		looked.count(planned)
		err = r.program(ctx, planned.flows, todo.flows)
	}
	result.flows = err
	if err == nil {
		r.reconciler.confirm.applied(r.Name, planned.view)
	} else {
		// What the bridge has now is anybody's guess.
		r.last = nil
	}
	if known {
		r.announce(ctx, records, todo.routes, result)
	}
	result.announced = r.announced
	looked.routes = len(r.announced)
	return result, looked
}

// planned flows, the tenant directory's view that they are made of, and what a pod has to know of the bridge.
type planned struct {
	flows     []plan.Flow
	view      uint64
	bridgeMAC attachment.MAC
	userspace bool
	// nowhere: there is no bridge for them.
	nowhere bool
}

func (s *seen) count(planned planned) {
	s.flows, s.bridgeMAC, s.userspace = len(planned.flows), planned.bridgeMAC, planned.userspace
	for _, flow := range planned.flows {
		number, _, _ := plan.ParseCookie(flow.Cookie)
		s.byNumber[number]++
	}
}

// plan what the bridge should have.
func (r *rail) plan(ctx context.Context, records []store.Record, result *outcome) (planned, error) {
	ctx, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	facts, err := r.reconciler.openVSwitch.Facts(ctx, r.Rail)
	nowhere := r.configured.Retired && errors.Is(err, openvswitch.ErrNoBridge)
	// A rail is often taken out because its NIC is gone. Its pods reach nobody, and their flows go.
	cut := r.configured.Retired && errors.Is(err, openvswitch.ErrNoUplink)
	if err != nil && !nowhere && !cut {
		return planned{}, err
	}
	// The view is taken before the flows are made of it: what changes meanwhile brings another pass.
	tenants, version, _ := r.reconciler.directory.View(r.reconciler.localTenants())
	var want []attachment.Attachment
	for _, record := range records {
		if record.Has(attachment.Flows) && r.reconciler.claims.holds(record.Key) {
			want = append(want, record.Attachment)
			result.planned[record.Key] = true
		}
	}
	flows, left := plan.Flows(r.Rail, facts, want, tenants)
	for _, unserved := range left {
		result.left[unserved.Key] = unserved.Reason
	}
	return planned{flows, version, facts.BridgeMAC, facts.Userspace, nowhere}, nil
}

// leave nothing of a retired rail that has no attachment any more, and forget it.
func (r *rail) leave(ctx context.Context, result *outcome) {
	result.announced = prefixes{}
	if r.left {
		return
	}
	err := within(ctx, func(bound context.Context) error {
		_, err := r.reconciler.openVSwitch.Facts(bound, r.Rail)
		if !errors.Is(err, openvswitch.ErrNoBridge) {
			_, err = r.reconciler.openVSwitch.Replace(bound, r.Bridge, nil)
			return err
		}
		return nil
	})
	result.flows, r.last = err, nil
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
	r.left = true
	r.reconciler.log.Info("nothing of a rail that was taken out of the configuration is left", "rail", r.Name)
}

// program the bridge: the difference where what it has is known, all of it otherwise or where a look at all is due.
func (r *rail) program(ctx context.Context, flows []plan.Flow, cause string) error {
	openVSwitch, now := r.reconciler.openVSwitch, appliedOf(flows)
	add, remove := r.last.to(flows)
	if r.last != nil && cause == "" {
		if len(add)+len(remove) == 0 {
			return nil
		}
		err := within(ctx, func(bound context.Context) error { return openVSwitch.Change(bound, r.Bridge, add, remove) })
		if err == nil {
			r.last = now
			reached(add, remove)
			return nil
		}
		r.reconciler.log.Warn("flows could not be changed; all of them are programmed anew", "rail", r.Name,
			"error", err)
		cause = "change-failed"
	}
	var repaired int
	err := within(ctx, func(bound context.Context) (err error) {
		repaired, err = openVSwitch.Replace(bound, r.Bridge, flows)
		return err
	})
	if err != nil {
		return err
	}
	if r.last != nil {
		// What was to change anyway was not wrong.
		repaired = max(0, repaired-len(add)-len(remove))
		reached(add, remove)
	}
	r.last = now
	if cause == "" {
		cause = "after-failure"
	}
	r.reconciler.repaired(r, cause, "flows", repaired)
	return nil
}

// within the bound of one call of the switch.
func within(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	return call(ctx)
}

func reached(add, remove []plan.Flow) {
	if len(add) > 0 {
		failpoint.Reach(failpoint.AddFlows)
	}
	if len(remove) > 0 {
		failpoint.Reach(failpoint.DeleteFlows)
	}
}

// withdraw the routes that nobody wants any more. False where what is announced could not be told.
func (r *rail) withdraw(ctx context.Context, records []store.Record, cause string, result *outcome) bool {
	ctx, cancel := context.WithTimeout(ctx, routesBound)
	defer cancel()
	if r.announced == nil || cause != "" {
		listed, err := r.reconciler.announcer.List(ctx, r.Rail)
		if err != nil {
			result.routes, r.announced = err, nil
			return false
		}
		r.noteStrangers(prefixesOf(listed), cause)
	}
	want := prefixes{}
	for _, record := range records {
		for _, prefix := range record.Prefixes() {
			want[prefix] = true
		}
	}
	keep := r.announced.within(want)
	if len(keep) == len(r.announced) {
		return true
	}
	if !r.sync(ctx, keep, result) {
		return r.announced != nil
	}
	failpoint.Reach(failpoint.DeleteWithdrawn)
	return true
}

// noteStrangers counts what somebody else has changed of our routes since the last look.
func (r *rail) noteStrangers(listed prefixes, cause string) {
	if r.announced != nil {
		both := len(listed.within(r.announced))
		r.reconciler.repaired(r, cause, "routes", len(listed)+len(r.announced)-2*both)
	}
	r.announced = listed
}

// announce the routes whose flows are in place. What is announced already stays, also where the bridge is away: it comes
// back sooner than the fabric would have learned the route anew.
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
	if cause == "" && len(want) == len(r.announced) && len(want.within(r.announced)) == len(want) {
		return
	}
	more := len(want) > len(r.announced)
	if r.sync(ctx, want.within(want), result) && more {
		failpoint.Reach(failpoint.AddRoutes)
	}
}

// sync makes the announced routes these. After a failure it looks at what is there: some of it may have been done.
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

// hostPrefixes of an attachment, whatever parts it has.
func hostPrefixes(record store.Record) []netip.Prefix {
	all := record.Attachment
	all.Part = []attachment.Part{attachment.Routes}
	return all.Prefixes()
}
