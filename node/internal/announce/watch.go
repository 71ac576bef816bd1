package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// awayPoll is the interval between attempts to reach a bgpd that is down.
	awayPoll = 250 * time.Millisecond
	// startPoll is the poll interval after bgpd's socket was created, for up to startLimit, because bgpd loads its
	// configuration after its start.
	startPoll  = 20 * time.Millisecond
	startLimit = 5 * time.Second
	// secondPoll is the poll interval where a rail has a second leaf, to which the flows move.
	secondPoll = 200 * time.Millisecond
)

// events is the channel that watchers write to. A slow reader already has a reason to look again, so further events are
// dropped.
type events struct{ channel chan Event }

func (e events) emit(format string, arguments ...any) {
	select {
	case e.channel <- Event{Reason: fmt.Sprintf(format, arguments...)}:
	default:
	}
}

// watch runs watchers until ctx ends, then closes the channel.
func watch(ctx context.Context, watchers ...func(context.Context, events)) <-chan Event {
	events := events{make(chan Event, 64)}
	var running sync.WaitGroup
	for _, watcher := range watchers {
		running.Go(func() { watcher(ctx, events) })
	}
	go func() {
		running.Wait()
		close(events.channel)
	}()
	return events.channel
}

// frrWatch follows bgpd: whether it replies, whether it restarted, and its sessions with the rails' leaves.
type frrWatch struct {
	*reader
	events events
	// drift describes another change in bgpd that we did not make, or returns "".
	drift func(context.Context) string
	known bool
	up    bool
	// restarted is when the socket was created again. It is zero once bgpd has shown all of its configuration.
	restarted time.Time
	sessions  map[string]string
}

func (r *reader) watchFRR(drift func(context.Context) string) func(context.Context, events) {
	return func(ctx context.Context, events events) {
		watch := &frrWatch{reader: r, events: events, drift: drift, sessions: map[string]string{}}
		watch.run(ctx)
	}
}

func (f *frrWatch) run(ctx context.Context) {
	// If the folder or inotify instances are missing, there are no notifications, and polling finds changes later.
	folder := &folderWatch{path: filepath.Dir(f.settings.Socket)}
	defer folder.close()
	for {
		folder.open()
		f.look(ctx)
		pause := time.NewTimer(f.pause())
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
				waiting = false
			case change, open := <-folder.changes():
				if !open {
					folder.close()
					continue
				}
				if change.Name == f.settings.Socket && change.Has(fsnotify.Create) {
					f.restarted = time.Now()
					waiting = false
				} else if change.Name == folder.path && change.Has(fsnotify.Remove|fsnotify.Rename) {
					folder.close()
				}
			}
		}
		pause.Stop()
	}
}

func (f *frrWatch) pause() time.Duration {
	switch {
	case time.Since(f.restarted) < startLimit:
		return startPoll
	case !f.up:
		return awayPoll
	case f.settings.SessionPoll > 0:
		return f.settings.SessionPoll
	case slices.ContainsFunc(f.settings.Rails, func(rail RailSettings) bool { return rail.SecondPeer.IsValid() }):
		return secondPoll
	}
	return defaultSessionPoll
}

func (f *frrWatch) look(ctx context.Context) {
	all, err := f.bgpd.neighbors(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if f.up {
			f.events.emit("bgpd stopped: %v", err)
		}
		f.up, f.known = false, true
		return
	}
	if len(all) == 0 && !f.up {
		// It runs without a configuration: nothing can be announced yet.
		f.known = true
		return
	}
	if !f.restarted.IsZero() {
		if f.missingNeighbor(all) && time.Since(f.restarted) < startLimit {
			return
		}
		f.events.emit("bgpd restarted")
		f.restarted = time.Time{}
	} else if f.known && !f.up {
		f.events.emit("bgpd is back")
	}
	f.up, f.known = true, true
	f.compare(all)
	if reason := f.drift(ctx); reason != "" {
		f.events.emit("%s", reason)
	}
}

func (f *frrWatch) missingNeighbor(all map[string]json.RawMessage) bool {
	for _, rail := range f.settings.Rails {
		for _, name := range rail.neighbors() {
			if all[name] == nil {
				return true
			}
		}
	}
	return false
}

// compare reports changes of sessions. The count of connections reveals a session that ended and came back between two
// looks.
func (f *frrWatch) compare(all map[string]json.RawMessage) {
	for _, rail := range f.settings.Rails {
		for _, name := range rail.neighbors() {
			now, state := "", "not configured"
			if known, err := rail.leafAmong(all, name); err == nil {
				session := known.session(name)
				state, now = session.State, fmt.Sprint(session.Established, known.ConnectionsEstablished)
			}
			before, seen := f.sessions[rail.Name+name]
			f.sessions[rail.Name+name] = now
			if seen && now != before {
				f.events.emit("session of rail %s with %s is %s", rail.Name, name, state)
			}
		}
	}
}

// folderWatch receives notifications of changes in a folder while it exists.
type folderWatch struct {
	path    string
	watcher *fsnotify.Watcher
}

func (f *folderWatch) open() {
	if f.watcher != nil {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	if watcher.Add(f.path) != nil {
		_ = watcher.Close()
		return
	}
	f.watcher = watcher
}

// changes returns the folder's events, or a nil channel while there is no watcher.
func (f *folderWatch) changes() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

func (f *folderWatch) close() {
	if f.watcher != nil {
		_ = f.watcher.Close()
		f.watcher = nil
	}
}
