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

	lock    sync.Mutex
	problem error // nil: connected
	// nd is what findND found last; ndKnown says that it has looked.
	nd, ndKnown bool
	lastLeaf    attachment.MAC
	// programmed says that all flows were made once since they were lost.
	programmed bool
	// expected number of flows, or unknown; epoch counts our own changes.
	expected int
	epoch    int
}

const (
	unknown      = -1
	lookInterval = time.Second
	// A socket that is not there costs nothing to try again; one that answers and soon does not is given more time.
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

// connected, and its datapath takes such flows or does not.
func (bridge *bridge) connected(nd bool) {
	bridge.lock.Lock()
	bridge.nd, bridge.ndKnown = nd, true
	bridge.lock.Unlock()
	bridge.set(nil)
}

func (bridge *bridge) set(problem error) {
	bridge.lock.Lock()
	bridge.problem = problem
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
			began := time.Now()
			err = bridge.watch(ctx, talk)
			talk.hangUp()
			if time.Since(began) < lookInterval {
				pause = talkPause
			}
		}
		err = fmt.Errorf("ovs-vswitchd does not answer: %w; is it running, and the bridge there?", err)
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("the bridge is not followed", "cause", err)
		}
		bridge.set(err)
		_ = wait(ctx, after(pause))
	}
}

// watch a conversation until it ends. Where ovs-vswitchd comes anew its pods are waiting: the flows come first then, made
// for the datapath as it was, and it is tried again after them.
func (bridge *bridge) watch(ctx context.Context, talk *conversation) error {
	nd, retryND := bridge.lastND()
	if !retryND {
		var err error
		if nd, err = bridge.findND(ctx); err != nil {
			return err
		}
	}
	seen, err := talk.look(ctx)
	if err != nil {
		return err
	}
	bridge.connected(nd)
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
		if retryND {
			if nd, err = bridge.findND(ctx); err != nil {
				return err
			}
			retryND = false
			bridge.connected(nd)
		}
		epoch := bridge.now()
		now, err := talk.look(ctx)
		if err != nil {
			return err
		}
		if why := bridge.compare(seen, now, epoch); why != "" {
			bridge.lost(why)
		}
		seen = now
	}
}

// lastND is what findND found in an earlier conversation, where there was one.
func (bridge *bridge) lastND() (nd, known bool) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	return bridge.nd, bridge.ndKnown
}

// findND tries a flow that answers neighbour solicitations, in a table that no packet meets: one that the datapath does
// not take would keep all others of its bundle out. An error where it cannot be tried.
func (bridge *bridge) findND(ctx context.Context) (bool, error) {
	bound, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	try := []plan.Flow{plan.TryND()}
	bridge.writing.Lock()
	before := bridge.expect(unknown)
	err := errors.Join(bridge.client.changeFlows(bound, bridge.name, try, nil),
		bridge.client.changeFlows(bound, bridge.name, nil, try))
	if err == nil {
		bridge.expect(before)
	}
	bridge.writing.Unlock()
	if bound.Err() != nil {
		return false, fmt.Errorf("no answer for %v: %w", answerBound, bound.Err())
	}
	if err != nil {
		bridge.client.settings.Log.Warn("the bridge does not take flows that answer IPv6 neighbour solicitations: pods need "+
			"permanent neighbour entries", "bridge", bridge.name, "cause", err)
	}
	return err == nil, nil
}

func (bridge *bridge) setProgrammed(yes bool) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	bridge.programmed = yes
}

func (bridge *bridge) lost(why string) {
	bridge.expect(unknown)
	bridge.setProgrammed(false)
	bridge.client.events.post(Event{Bridge: bridge.name, FlowsLost: true, Why: why})
}

// expect this many flows from now on; unknown: as many as are seen next. It gives what was expected before.
func (bridge *bridge) expect(flows int) (before int) {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	before, bridge.expected = bridge.expected, flows
	bridge.epoch++
	return before
}

// now is the epoch that a look begins in.
func (bridge *bridge) now() int {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	return bridge.epoch
}

// compare what is seen with what was and with what we made, and say what somebody else has changed; empty: nothing. Of a
// look during which we changed something ourselves no number counts.
func (bridge *bridge) compare(before, now sight, epoch int) string {
	bridge.lock.Lock()
	defer bridge.lock.Unlock()
	undisturbed := epoch == bridge.epoch
	switch {
	case !now.canary && (before.canary || undisturbed && bridge.programmed):
		return "its flows were deleted by somebody else"
	case !undisturbed:
	case bridge.expected == unknown:
		bridge.expected = now.flows
	case bridge.expected != now.flows:
		return fmt.Sprintf("it has %d flows where we made %d", now.flows, bridge.expected)
	}
	return ""
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
	if flows != unknown {
		bridge.setProgrammed(true)
	}
	return err
}
