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
func (b *bridge) answersND() (bool, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.nd, b.problem
}

// connected, and its datapath takes such flows or does not.
func (b *bridge) connected(nd bool) {
	b.lock.Lock()
	b.nd, b.ndKnown = nd, true
	b.lock.Unlock()
	b.set(nil)
}

func (b *bridge) set(problem error) {
	b.lock.Lock()
	b.problem = problem
	b.lock.Unlock()
	b.firstTime.Do(func() { close(b.tried) })
	b.client.look()
}

// follow until ctx ends. ovs-vswitchd loses all flows when it starts anew: that is told as soon as it is there again.
func (b *bridge) follow(ctx context.Context) {
	log := b.client.settings.Log.With("bridge", b.name)
	for logged := ""; ctx.Err() == nil; {
		pause := connectPause
		talk, err := converse(ctx, b.client.settings.management(b.name))
		if err == nil {
			began := time.Now()
			err = b.watch(ctx, talk)
			talk.hangUp()
			if time.Since(began) < lookInterval {
				pause = talkPause
			}
		}
		err = fmt.Errorf("ovs-vswitchd does not answer: %w; is it running, and the bridge there?", err)
		if ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			log.Warn("the bridge is not followed", "cause", err)
		}
		b.set(err)
		_ = wait(ctx, after(pause))
	}
}

// watch a conversation until it ends. Where ovs-vswitchd comes anew its pods are waiting: the flows come first then, made
// for the datapath as it was, and it is tried again after them.
func (b *bridge) watch(ctx context.Context, talk *conversation) error {
	nd, retryND := b.lastND()
	if !retryND {
		var err error
		nd, err = b.findND(ctx)
		if err != nil {
			return err
		}
	}
	seen, err := talk.look(ctx)
	if err != nil {
		return err
	}
	b.connected(nd)
	b.expect(unknown)
	if !seen.canary {
		b.lost("its flows are gone: ovs-vswitchd came anew, or was never programmed")
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
			nd, err = b.findND(ctx)
			if err != nil {
				return err
			}
			retryND = false
			b.connected(nd)
		}
		epoch := b.now()
		now, err := talk.look(ctx)
		if err != nil {
			return err
		}
		if reason := b.compare(seen, now, epoch); reason != "" {
			b.lost(reason)
		}
		seen = now
	}
}

// lastND is what findND found in an earlier conversation, where there was one.
func (b *bridge) lastND() (nd, known bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.nd, b.ndKnown
}

// findND tries a flow that answers neighbour solicitations, in a table that no packet meets: one that the datapath does
// not take would keep all others of its bundle out. An error where it cannot be tried.
func (b *bridge) findND(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	try := []plan.Flow{plan.NDTestFlow()}
	b.writing.Lock()
	before := b.expect(unknown)
	err := errors.Join(b.client.changeFlows(ctx, b.name, try, nil),
		b.client.changeFlows(ctx, b.name, nil, try))
	if err == nil {
		b.expect(before)
	}
	b.writing.Unlock()
	if ctx.Err() != nil {
		return false, fmt.Errorf("no answer for %v: %w", answerBound, ctx.Err())
	}
	if err != nil {
		b.client.settings.Log.Warn("the bridge does not take flows that answer IPv6 neighbour solicitations: pods need "+
			"permanent neighbour entries", "bridge", b.name, "cause", err)
	}
	return err == nil, nil
}

func (b *bridge) setProgrammed(yes bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.programmed = yes
}

func (b *bridge) lost(reason string) {
	b.expect(unknown)
	b.setProgrammed(false)
	b.client.events.post(Event{Bridge: b.name, FlowsLost: true, Why: reason})
}

// expect this many flows from now on; unknown: as many as are seen next. It gives what was expected before.
func (b *bridge) expect(flows int) (before int) {
	b.lock.Lock()
	defer b.lock.Unlock()
	before, b.expected = b.expected, flows
	b.epoch++
	return before
}

// now is the epoch that a look begins in.
func (b *bridge) now() int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.epoch
}

// compare what is seen with what was and with what we made, and say what somebody else has changed; empty: nothing. Of a
// look during which we changed something ourselves no number counts.
func (b *bridge) compare(before, now sight, epoch int) string {
	b.lock.Lock()
	defer b.lock.Unlock()
	undisturbed := epoch == b.epoch
	switch {
	case !now.canary && (before.canary || undisturbed && b.programmed):
		return "its flows were deleted by somebody else"
	case !undisturbed:
	case b.expected == unknown:
		b.expected = now.flows
	case b.expected != now.flows:
		return fmt.Sprintf("it has %d flows where we made %d", now.flows, b.expected)
	}
	return ""
}

// change runs one that alters flows: alone, and known to the watch. It says how many flows there are afterwards, where
// it knows.
func (b *bridge) change(alter func() (flows int, err error)) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.expect(unknown)
	flows, err := alter()
	if err != nil {
		flows = unknown
	}
	b.expect(flows)
	if flows != unknown {
		b.setProgrammed(true)
	}
	return err
}
