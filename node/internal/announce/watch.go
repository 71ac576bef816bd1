package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// awayPoll is how often a bgpd that is away is asked for.
	awayPoll = 250 * time.Millisecond
	// startPoll is how often one is asked whose socket has just been made, for up to startLimit: its configuration is
	// loaded after its start.
	startPoll  = 20 * time.Millisecond
	startLimit = 5 * time.Second
)

// events are what a watcher emits. A reader who is behind has reasons enough to look again: more are left out.
type events struct{ channel chan Event }

func (e events) emit(format string, arguments ...any) {
	select {
	case e.channel <- Event{Why: fmt.Sprintf(format, arguments...)}:
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

// frrWatch follows bgpd: whether it answers, whether it came anew, and its sessions with the rails' leaves.
type frrWatch struct {
	*reader
	events events
	// drift says what else has changed in bgpd that nobody asked us for; empty: nothing.
	drift func(context.Context) string
	known bool
	up    bool
	// anew since then: the socket was made again, and bgpd has not shown all of its configuration yet.
	anew     time.Time
	sessions map[string]string
}

func (r *reader) watchFRR(drift func(context.Context) string) func(context.Context, events) {
	return func(ctx context.Context, events events) {
		watch := &frrWatch{reader: r, events: events, drift: drift, sessions: map[string]string{}}
		watch.run(ctx)
	}
}

func (f *frrWatch) run(ctx context.Context) {
	// Without notifications, which need the folder to be there and inotify instances to be left, polling finds all, later.
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
					f.anew = time.Now()
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
	case time.Since(f.anew) < startLimit:
		return startPoll
	case !f.up:
		return awayPoll
	case f.settings.SessionPoll > 0:
		return f.settings.SessionPoll
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
			f.events.emit("bgpd has gone: %v", err)
		}
		f.up, f.known = false, true
		return
	}
	if len(all) == 0 && !f.up {
		// It runs, but has not got its configuration: nothing can be announced yet.
		f.known = true
		return
	}
	if !f.anew.IsZero() {
		if f.missingNeighbor(all) && time.Since(f.anew) < startLimit {
			return
		}
		f.events.emit("bgpd came anew")
		f.anew = time.Time{}
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
		if all[rail.neighbor()] == nil {
			return true
		}
	}
	return false
}

// compare sessions with what they were, and say what is new. A session that ended and came back between two looks is told
// by the count of its beginnings.
func (f *frrWatch) compare(all map[string]json.RawMessage) {
	for _, rail := range f.settings.Rails {
		now, state := "", "not configured"
		if session, err := rail.session(all); err == nil {
			state = session.State
			var counted neighbor
			_ = json.Unmarshal(all[rail.neighbor()], &counted)
			now = fmt.Sprint(session.Established, counted.ConnectionsEstablished)
		}
		before, seen := f.sessions[rail.Name]
		f.sessions[rail.Name] = now
		if seen && now != before {
			f.events.emit("session of rail %s with %s is %s", rail.Name, rail.neighbor(), state)
		}
	}
}

// folderWatch is notified of changes in a folder while it is there.
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

// changes of the folder; nil, from which nothing comes, while there is no watcher.
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
