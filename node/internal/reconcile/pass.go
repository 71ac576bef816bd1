package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
)

var (
	errStopped  = errors.New("railwrightd is ending")
	errHeldBack = errors.New("they wait for the attachment's flows")
)

// pass makes the rail what the store says, in the order that never shows an address to the fabric which the bridge does
// not serve: routes are withdrawn, flows changed, routes announced.
func (rail *rail) pass(ctx context.Context, todo due) (*outcome, seen) {
	records := rail.records()
	result := newOutcome()
	looked := seen{outcome: result, at: time.Now(), byNumber: map[uint16]int{}}

	known := rail.withdraw(ctx, records, todo.routes, result)
	planned, err := rail.plan(ctx, records, result)
	if err == nil {
		looked.count(planned)
		err = rail.program(ctx, planned.flows, todo.flows)
	}
	result.flows = err
	if err == nil {
		rail.reconciler.confirm.applied(rail.Name, planned.view)
	} else {
		// What the bridge has now is anybody's guess.
		rail.last = nil
	}
	if known {
		rail.announce(ctx, records, todo.routes, result)
	}
	result.announced = rail.announced
	looked.routes = len(rail.announced)
	return result, looked
}

// planned flows, the tenant directory's view that they are made of, and the bridge's own MAC address.
type planned struct {
	flows     []plan.Flow
	view      uint64
	bridgeMAC attachment.MAC
}

func (looked *seen) count(planned planned) {
	looked.flows, looked.bridgeMAC = len(planned.flows), planned.bridgeMAC
	for _, flow := range planned.flows {
		number, _, _ := plan.ParseCookie(flow.Cookie)
		looked.byNumber[number]++
	}
}

// plan what the bridge should have.
func (rail *rail) plan(ctx context.Context, records []store.Record, result *outcome) (planned, error) {
	bound, end := context.WithTimeout(ctx, switchBound)
	defer end()
	facts, err := rail.reconciler.openVSwitch.Facts(bound, rail.Rail.Rail)
	if err != nil {
		return planned{}, err
	}
	// The view is taken before the flows are made of it: what changes meanwhile brings another pass.
	tenants, version, _ := rail.reconciler.directory.View(rail.reconciler.localTenants())
	var wanted []attachment.Attachment
	for _, record := range records {
		if record.Has(attachment.Flows) && rail.reconciler.claims.holds(record.Key) {
			wanted = append(wanted, record.Attachment)
			result.planned[record.Key] = true
		}
	}
	flows, left := plan.Flows(rail.Rail.Rail, facts, wanted, tenants)
	for _, one := range left {
		result.left[one.Key] = one.Why
	}
	return planned{flows, version, facts.BridgeMAC}, nil
}

// program the bridge: the difference where what it has is known, all of it otherwise or where a look at all is due.
func (rail *rail) program(ctx context.Context, flows []plan.Flow, why string) error {
	openVSwitch, now := rail.reconciler.openVSwitch, appliedOf(flows)
	add, remove := rail.last.to(flows)
	if rail.last != nil && why == "" {
		if len(add)+len(remove) == 0 {
			return nil
		}
		err := within(ctx, func(bound context.Context) error { return openVSwitch.Change(bound, rail.Bridge, add, remove) })
		if err == nil {
			rail.last = now
			reached(add, remove)
			return nil
		}
		rail.reconciler.log.Warn("flows could not be changed; all of them are programmed anew", "rail", rail.Name,
			"error", err)
		why = "change-failed"
	}
	var repaired int
	err := within(ctx, func(bound context.Context) (err error) {
		repaired, err = openVSwitch.Replace(bound, rail.Bridge, flows)
		return err
	})
	if err != nil {
		return err
	}
	if rail.last != nil {
		// What was to change anyway was not wrong.
		repaired = max(0, repaired-len(add)-len(remove))
		reached(add, remove)
	}
	rail.last = now
	if why == "" {
		why = "after-failure"
	}
	rail.reconciler.repaired(rail, why, "flows", repaired)
	return nil
}

// within the bound of one call of the switch.
func within(ctx context.Context, call func(context.Context) error) error {
	bound, end := context.WithTimeout(ctx, switchBound)
	defer end()
	return call(bound)
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
func (rail *rail) withdraw(ctx context.Context, records []store.Record, why string, result *outcome) bool {
	bound, end := context.WithTimeout(ctx, routesBound)
	defer end()
	if rail.announced == nil || why != "" {
		listed, err := rail.reconciler.announcer.List(bound, rail.Rail.Rail)
		if err != nil {
			result.routes, rail.announced = err, nil
			return false
		}
		rail.noteStrangers(prefixesOf(listed), why)
	}
	wanted := prefixes{}
	for _, record := range records {
		for _, prefix := range record.Prefixes() {
			wanted[prefix] = true
		}
	}
	keep := rail.announced.within(wanted)
	if len(keep) == len(rail.announced) {
		return true
	}
	if !rail.sync(bound, keep, result) {
		return rail.announced != nil
	}
	failpoint.Reach(failpoint.DeleteWithdrawn)
	return true
}

// noteStrangers counts what somebody else has changed of our routes since the last look.
func (rail *rail) noteStrangers(listed prefixes, why string) {
	if rail.announced != nil {
		both := len(listed.within(rail.announced))
		rail.reconciler.repaired(rail, why, "routes", len(listed)+len(rail.announced)-2*both)
	}
	rail.announced = listed
}

// announce the routes whose flows are in place. What is announced already stays, also where the bridge is away: it comes
// back sooner than the fabric would have learned the route anew.
func (rail *rail) announce(ctx context.Context, records []store.Record, why string, result *outcome) {
	bound, end := context.WithTimeout(ctx, routesBound)
	defer end()
	want := prefixes{}
	for _, record := range records {
		served := !record.Has(attachment.Flows) ||
			result.flows == nil && result.served(record.Key)
		served = served && rail.reconciler.claims.holds(record.Key)
		for _, prefix := range record.Prefixes() {
			if served || rail.announced[prefix] {
				want[prefix] = true
			}
		}
	}
	if why == "" && len(want) == len(rail.announced) && len(want.within(rail.announced)) == len(want) {
		return
	}
	more := len(want) > len(rail.announced)
	if rail.sync(bound, want.within(want), result) && more {
		failpoint.Reach(failpoint.AddRoutes)
	}
}

// sync makes the announced routes these. After a failure it looks at what is there: some of it may have been done.
func (rail *rail) sync(ctx context.Context, want []netip.Prefix, result *outcome) bool {
	_, _, err := rail.reconciler.announcer.Sync(ctx, rail.Rail.Rail, want)
	if err == nil {
		rail.announced = prefixesOf(want)
		return true
	}
	result.routes = err
	rail.announced = nil
	if listed, listErr := rail.reconciler.announcer.List(ctx, rail.Rail.Rail); listErr == nil {
		rail.announced = prefixesOf(listed)
	}
	return false
}

// hostPrefixes of an attachment, whatever parts it has.
func hostPrefixes(record store.Record) []netip.Prefix {
	all := record.Attachment
	all.Part = []attachment.Part{attachment.Routes}
	return all.Prefixes()
}
