package openvswitch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// events distributes events to all subscribers. A slow subscriber loses none: events of a bridge are merged.
type events struct {
	lock        sync.Mutex
	subscribers map[*subscriber]bool
}

type subscriber struct {
	pending map[string]Event
	// ready receives a value when pending is no longer empty.
	ready chan struct{}
}

// longestReason bounds the reason of merged events, which is for a log line.
const longestReason = 400

func newEvents() *events {
	return &events{subscribers: map[*subscriber]bool{}}
}

func (e *events) post(event Event) {
	e.lock.Lock()
	defer e.lock.Unlock()
	for subscriber := range e.subscribers {
		subscriber.pending[event.Bridge] = merge(subscriber.pending[event.Bridge], event)
		select {
		case subscriber.ready <- struct{}{}:
		default:
		}
	}
}

func merge(old, new Event) Event {
	new.FlowsLost = new.FlowsLost || old.FlowsLost
	if old.Reason != "" && !strings.Contains(old.Reason, new.Reason) && len(old.Reason)+len(new.Reason) < longestReason {
		new.Reason = old.Reason + "; " + new.Reason
	}
	return new
}

func (e *events) subscribe(ctx context.Context) <-chan Event {
	mine := &subscriber{pending: map[string]Event{}, ready: make(chan struct{}, 1)}
	e.lock.Lock()
	e.subscribers[mine] = true
	e.lock.Unlock()
	out := make(chan Event)
	go func() {
		defer close(out)
		defer e.unsubscribe(mine)
		for {
			select {
			case <-ctx.Done():
				return
			case <-mine.ready:
			}
			for _, event := range e.take(mine) {
				select {
				case <-ctx.Done():
					return
				case out <- event:
				}
			}
		}
	}()
	return out
}

func (e *events) take(mine *subscriber) []Event {
	e.lock.Lock()
	defer e.lock.Unlock()
	var taken []Event
	for _, bridge := range slices.Sorted(maps.Keys(mine.pending)) {
		taken = append(taken, mine.pending[bridge])
	}
	clear(mine.pending)
	return taken
}

func (e *events) unsubscribe(mine *subscriber) {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.subscribers, mine)
}
