package announce

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"railwright/node/internal/plan"
)

const (
	// firstPause between looks: bgpd takes 50 ms from a new route to its update, and a look at 200 routes about 1 ms.
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
	// waitLimit is for callers whose context has no deadline.
	waitLimit = 5 * time.Second
	// reasonAfter this long it is no longer bgpd's usual time, and the reason is looked for.
	reasonAfter = 300 * time.Millisecond
)

// reader of FRR's state, the same for both backends.
type reader struct {
	settings Settings
	bgpd     bgpd
	// source is how our routes enter BGP, for the reader of an error.
	source func(RailSettings) string
	mutex  sync.Mutex
	looks  map[lookAt]*look
}

type lookAt struct {
	rail   string
	family family
}

// look is the newest answer to what was sent to a leaf, shared by all who wait: fifty of them cost bgpd as much as one.
type look struct {
	turn  chan struct{}
	began time.Time
	took  time.Duration
	sent  map[netip.Prefix]bool
	err   error
}

func newReader(settings Settings, source func(RailSettings) string) *reader {
	return &reader{settings: settings, bgpd: bgpd{settings.Socket}, source: source, looks: map[lookAt]*look{}}
}

// Session of the rail with its leaf.
func (r *reader) Session(ctx context.Context, rail plan.Rail) (Session, error) {
	settings, err := r.settings.rail(rail.Name)
	if err != nil {
		return Session{}, err
	}
	all, err := r.bgpd.neighbors(ctx)
	if err != nil {
		return Session{}, err
	}
	return settings.session(all)
}

// WaitAdvertised until FRR has sent all prefixes to the rail's leaf. Ends with ctx, and after 5 s where that has no
// deadline; then the error says which prefix, and why as far as FRR tells.
func (r *reader) WaitAdvertised(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error {
	settings, err := r.settings.rail(rail.Name)
	if err != nil {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitLimit)
		defer cancel()
	}
	began, queried := time.Now(), time.Time{}
	missing, reason := prefixes, "bgpd has not answered yet"
	for {
		var took time.Duration
		missing, took, err = r.missing(ctx, settings, missing)
		if err == nil && len(missing) == 0 {
			return nil
		}
		waited := time.Since(began)
		if err == nil && waited > reasonAfter && time.Since(queried) > reasonAfter {
			var notSent string
			notSent, err = r.bgpd.whyNotSent(ctx, settings, missing[0], r.source(settings))
			if err == nil {
				reason = notSent
			}
			queried = time.Now()
		}
		if err != nil && ended(ctx) == nil {
			reason = err.Error()
		}
		select {
		case <-ctx.Done():
			return notAdvertised(ctx, settings, missing, waited, reason)
		case <-time.After(min(lastPause, max(firstPause, 3*took, waited/20))):
		}
	}
}

func notAdvertised(ctx context.Context, rail RailSettings, missing []netip.Prefix, waited time.Duration, reason string) error {
	return fmt.Errorf("%s on rail %s: %w after %v: %s (%w)", some(missing), rail.Name, ErrNotAdvertised,
		waited.Round(time.Millisecond), reason, ctx.Err())
}

// some of prefixes in few words.
func some(prefixes []netip.Prefix) string {
	if len(prefixes) == 1 {
		return prefixes[0].String()
	}
	return fmt.Sprintf("%s and %d more", prefixes[0], len(prefixes)-1)
}

// missing of the prefixes at the leaf, and how long the looks took.
func (r *reader) missing(ctx context.Context, rail RailSettings, prefixes []netip.Prefix) ([]netip.Prefix, time.Duration, error) {
	var missing []netip.Prefix
	var took time.Duration
	for _, family := range families {
		var needed []netip.Prefix
		for _, prefix := range prefixes {
			if family.has(prefix) {
				needed = append(needed, prefix)
			}
		}
		if len(needed) == 0 {
			continue
		}
		sent, one, err := r.look(ctx, rail, family)
		if err != nil {
			return prefixes, one, err
		}
		took += one
		for _, prefix := range needed {
			if !sent[prefix] {
				missing = append(missing, prefix)
			}
		}
	}
	return missing, took, nil
}

// look at what was sent, not before this call began: one's own, or one that somebody else began meanwhile.
func (r *reader) look(ctx context.Context, rail RailSettings, family family) (map[netip.Prefix]bool, time.Duration, error) {
	came := time.Now()
	at := lookAt{rail.Name, family}
	r.mutex.Lock()
	look := r.looks[at]
	if look == nil {
		look = newLook()
		r.looks[at] = look
	}
	r.mutex.Unlock()
	select {
	case look.turn <- struct{}{}:
		defer func() { <-look.turn }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if look.began.After(came) {
		return look.sent, look.took, look.err
	}
	began := time.Now()
	look.sent, look.err = r.bgpd.sent(ctx, rail, family)
	look.began, look.took = began, time.Since(began)
	if ended(ctx) != nil {
		// This caller's time is over, not that of those behind it.
		look.began = time.Time{}
	}
	return look.sent, look.took, look.err
}

func newLook() *look { return &look{turn: make(chan struct{}, 1)} }
