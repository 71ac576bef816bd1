package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// bridge is one rail's, followed over its management socket: whether ovs-vswitchd is there, and whether the flows are
// what we made them.
type bridge struct {
	client *Client
	name   string
	// tried is closed when the first attempt to connect has ended, well or not.
	tried     chan struct{}
	firstTime sync.Once
	// writing is held by whoever changes flows: one at a time, each sees what the last one left.
	writing sync.Mutex

	lock     sync.Mutex
	problem  error // nil: connected
	nd       bool
	lastLeaf attachment.MAC
	// expected number of flows, or unknown; epoch counts our own changes.
	expected int
	epoch    int
}

const (
	unknown      = -1
	lookInterval = time.Second
	// A socket that is not there costs nothing to try again; one that answers and then does not is given more time.
	connectPause = 50 * time.Millisecond
	talkPause    = 250 * time.Millisecond
)

var errNotConnected = errors.New("ovs-vswitchd does not answer yet")

func newBridge(client *Client, name string) *bridge {
	return &bridge{
		client: client, name: name, tried: make(chan struct{}), problem: errNotConnected, expected: unknown,
	}
}

// answersND says whether its datapath takes flows that answer neighbour solicitations; an error where ovs-vswitchd does
// not answer at all.
func (bridge *bridge) answersND() (bool, error) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	return bridge.nd, bridge.problem
}

func (bridge *bridge) set(problem error, nd bool) {
	bridge.lock.Lock()
	bridge.problem, bridge.nd = problem, nd
	bridge.lock.Unlock()
	bridge.firstTime.Do(func() { close(bridge.tried) })
	bridge.client.look()
}

// follow until ctx ends. ovs-vswitchd loses all flows when it starts anew: that is told as soon as it is there again.
func (bridge *bridge) follow(ctx context.Context) {
	log := bridge.client.settings.Log.With("bridge", bridge.name)
	for said := ""; ctx.Err() == nil; {
		pause := connectPause
		talk, err := converse(ctx, bridge.client.settings.management(bridge.name))
		if err == nil {
			err = bridge.watch(ctx, talk)
			talk.hangUp()
			pause = talkPause
		}
		err = fmt.Errorf("ovs-vswitchd does not answer: %w; is it running, and the bridge there?", err)
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("the bridge is not followed", "cause", err)
		}
		bridge.set(err, false)
		_ = wait(ctx, after(pause))
	}
}

// watch a conversation until it ends.
func (bridge *bridge) watch(ctx context.Context, talk *conversation) error {
	nd := bridge.findND(ctx)
	seen, err := talk.look(ctx)
	if err != nil {
		return err
	}
	bridge.set(nil, nd)
	bridge.expect(unknown)
	if !seen.canary {
		bridge.lost("its flows are gone: ovs-vswitchd came anew, or was never programmed")
	}
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-talk.replies:
			if open {
				return errors.New("it sent an answer that was not asked for")
			}
			return talk.end()
		case <-ticker.C:
		}
		epoch := bridge.now()
		now, err := talk.look(ctx)
		if err != nil {
			return err
		}
		if seen.canary && !now.canary {
			bridge.lost("its flows were deleted by somebody else")
		} else if expected, ok := bridge.compare(now, epoch); !ok {
			bridge.lost(fmt.Sprintf("it has %d flows where we made %d", now.flows, expected))
		}
		seen = now
	}
}

// findND tries a flow that answers neighbour solicitations, in a table that no packet meets. Where it cannot be tried
// it is no: a flow that the datapath does not take would keep all others of its bundle out.
func (bridge *bridge) findND(ctx context.Context) bool {
	try := []plan.Flow{plan.TryND()}
	err := bridge.change(func() (int, error) {
		return unknown, errors.Join(bridge.client.changeFlows(ctx, bridge.name, try, nil),
			bridge.client.changeFlows(ctx, bridge.name, nil, try))
	})
	if err != nil && ctx.Err() == nil {
		bridge.client.settings.Log.Warn("the bridge does not take flows that answer IPv6 neighbour solicitations: pods need "+
			"permanent neighbour entries", "bridge", bridge.name, "cause", err)
	}
	return err == nil
}

func (bridge *bridge) lost(why string) {
	bridge.expect(unknown)
	bridge.client.events.post(Event{Bridge: bridge.name, FlowsLost: true, Why: why})
}

// expect this many flows from now on; unknown: as many as are seen next.
func (bridge *bridge) expect(flows int) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	bridge.expected = flows
	bridge.epoch++
}

// now is the epoch that a look begins in.
func (bridge *bridge) now() int {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	return bridge.epoch
}

// compare what was seen with what we made; a look during which we changed something ourselves says nothing.
func (bridge *bridge) compare(seen sight, epoch int) (expected int, ok bool) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	if epoch != bridge.epoch {
		return 0, true
	}
	if bridge.expected == unknown {
		bridge.expected = seen.flows
	}
	return bridge.expected, bridge.expected == seen.flows
}

// change runs one that alters flows: alone, and known to the watch. It says how many flows there are afterwards, where
// it knows.
func (bridge *bridge) change(alter func() (flows int, err error)) error {
	bridge.writing.Lock()
	defer bridge.writing.Unlock()
	bridge.expect(unknown)
	flows, err := alter()
	if err != nil {
		flows = unknown
	}
	bridge.expect(flows)
	return err
}
