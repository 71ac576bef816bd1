package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// bridge is a rail's bridge, followed over its management socket: whether ovs-vswitchd runs, and whether the flows are
// those that we programmed.
type bridge struct {
	client *Client
	name   string
	// tried is closed once the first attempt to connect has ended, successful or not.
	tried     chan struct{}
	firstTime sync.Once
	// writing serializes changes of flows, so that each sees the result of the last.
	writing sync.Mutex
	// programmer is the connection for changes of flows, or nil. writing guards it.
	programmer *conversation

	lock    sync.Mutex
	problem error // nil: connected
	// nd is the last result of findND; ndKnown reports whether there is one.
	nd, ndKnown bool
	lastLeaf    map[netip.Addr]attachment.MAC
	// programmed reports whether all flows were programmed since they were last lost.
	programmed bool
	// expected is the number of flows, or unknown. epoch counts our own changes.
	expected int
	epoch    int
}

const (
	unknown      = -1
	lookInterval = time.Second
	// A missing socket costs nothing to retry; one that connects and soon fails gets more time.
	connectPause = 50 * time.Millisecond
	talkPause    = 250 * time.Millisecond
)

var errNotConnected = errors.New("ovs-vswitchd does not reply yet")

func newBridge(client *Client, name string) *bridge {
	return &bridge{
		client: client, name: name, tried: make(chan struct{}), problem: errNotConnected, expected: unknown,
		lastLeaf: map[netip.Addr]attachment.MAC{},
	}
}

// answersND reports whether the datapath takes flows that answer neighbour solicitations. It fails while ovs-vswitchd
// does not reply.
func (b *bridge) answersND() (bool, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.nd, b.problem
}

// connected records a connection, and whether the datapath takes such flows.
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

// follow watches the bridge until ctx ends. A restarted ovs-vswitchd has lost all flows, which is reported as soon as
// it is back.
func (b *bridge) follow(ctx context.Context) {
	defer b.hangUp()
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
		err = fmt.Errorf("ovs-vswitchd does not reply: %w; check that it runs and that the bridge exists", err)
		if ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			log.Warn("bridge cannot be watched", "cause", err)
		}
		b.set(err)
		_ = wait(ctx, afterPause(pause))
	}
}

// hangUp closes the connection for changes.
func (b *bridge) hangUp() {
	b.writing.Lock()
	defer b.writing.Unlock()
	if b.programmer != nil {
		b.programmer.hangUp()
		b.programmer = nil
	}
}

// watch follows a conversation until it ends. After a restart of ovs-vswitchd pods are waiting: the flows are
// programmed first, for the datapath as it was, and findND runs after them.
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
		b.reportLoss("flows are missing: ovs-vswitchd restarted or was never programmed")
	}
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-talk.replies:
			if open {
				return errors.New("unexpected reply")
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
			b.reportLoss(reason)
		}
		seen = now
	}
}

// lastND returns the result of findND in an earlier conversation, if any.
func (b *bridge) lastND() (nd, known bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.nd, b.ndKnown
}

// findND tests a flow that answers neighbour solicitations in a table that no packet meets: a flow that the datapath
// refuses would fail its whole bundle. findND returns an error if it cannot test.
func (b *bridge) findND(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, replyBound)
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
		return false, fmt.Errorf("no reply within %v: %w", replyBound, ctx.Err())
	}
	if err != nil {
		b.client.settings.Log.Warn("bridge does not take flows that answer IPv6 neighbour solicitations; pods need "+
			"permanent neighbour entries", "bridge", b.name, "cause", err)
	}
	return err == nil, nil
}

func (b *bridge) setProgrammed(yes bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.programmed = yes
}

func (b *bridge) reportLoss(reason string) {
	b.expect(unknown)
	b.setProgrammed(false)
	b.client.events.post(Event{Bridge: b.name, FlowsLost: true, Reason: reason})
}

// expect sets the number of flows to expect; unknown means the number seen next. It returns the previous value.
func (b *bridge) expect(flows int) (before int) {
	b.lock.Lock()
	defer b.lock.Unlock()
	before, b.expected = b.expected, flows
	b.epoch++
	return before
}

// now returns the current epoch.
func (b *bridge) now() int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.epoch
}

// compare describes a change that another program made between two looks, or returns "". The number of flows does not
// count if we changed flows during the look.
func (b *bridge) compare(before, now sight, epoch int) string {
	b.lock.Lock()
	defer b.lock.Unlock()
	undisturbed := epoch == b.epoch
	switch {
	case !now.canary && (before.canary || undisturbed && b.programmed):
		return "another program deleted the flows"
	case !undisturbed:
	case b.expected == unknown:
		b.expected = now.flows
	case b.expected != now.flows:
		return fmt.Sprintf("bridge has %d flows, want %d: another program changed them", now.flows, b.expected)
	}
	return ""
}

// change runs alter, which changes flows and returns their new number or unknown, without a concurrent change, and
// notifies the watch.
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
