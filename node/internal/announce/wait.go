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
	// firstPause is the first pause between looks: bgpd takes 50 ms from a new route to its update, and a look at 200
	// routes about 1 ms.
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
	// waitLimit applies to callers whose context has no deadline.
	waitLimit = 5 * time.Second
	// reasonAfter is above bgpd's usual time; a longer wait looks for the reason.
	reasonAfter = 300 * time.Millisecond
)

// reader reads FRR's state for both backends.
type reader struct {
	settings Settings
	bgpd     bgpd
	// source describes how our routes enter BGP, for error messages.
	source func(RailSettings) string
	mutex  sync.Mutex
	looks  map[lookKey]*look
}

type lookKey struct {
	rail   string
	family family
}

// look is the latest list of what was sent to a leaf. All waiting callers share it: fifty cost bgpd no more than one.
type look struct {
	turn  chan struct{}
	began time.Time
	took  time.Duration
	// sent counts the leaves that were sent a prefix, of this many.
	sent   map[netip.Prefix]int
	leaves int
	err    error
}

func newReader(settings Settings, source func(RailSettings) string) *reader {
	return &reader{settings: settings, bgpd: bgpd{settings.Socket}, source: source, looks: map[lookKey]*look{}}
}

// Session returns the rail's session with its leaf.
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

// WaitAdvertised waits until FRR has sent all prefixes to the rail's leaf, until ctx ends, or for 5 s if ctx has no
// deadline. The error names a missing prefix and FRR's reason.
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
	missing, reason := prefixes, "bgpd has not replied yet"
	for {
		var took time.Duration
		missing, _, took, err = r.missingPrefixes(ctx, settings, missing)
		if err == nil && len(missing) == 0 {
			return nil
		}
		waited := time.Since(began)
		if err == nil && waited > reasonAfter && time.Since(queried) > reasonAfter {
			var notSent string
			notSent, err = r.bgpd.explainNotSent(ctx, settings, missing[0], r.source(settings))
			if err == nil {
				reason = notSent
			}
			queried = time.Now()
		}
		if err != nil && contextError(ctx) == nil {
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
	return fmt.Errorf("%s on rail %s: %w after %v: %s (%w)", summarize(missing), rail.Name, ErrNotAdvertised,
		waited.Round(time.Millisecond), reason, ctx.Err())
}

// summarize summarizes prefixes.
func summarize(prefixes []netip.Prefix) string {
	if len(prefixes) == 1 {
		return prefixes[0].String()
	}
	return fmt.Sprintf("%s and %d more", prefixes[0], len(prefixes)-1)
}

// missingPrefixes returns the prefixes that a leaf with a session lacks, those that all leaves lack, and how long the
// looks took.
func (r *reader) missingPrefixes(
	ctx context.Context, rail RailSettings, prefixes []netip.Prefix,
) (missing, nowhere []netip.Prefix, took time.Duration, err error) {
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
		sent, leaves, duration, err := r.look(ctx, rail, family)
		if err != nil {
			return prefixes, nil, duration, err
		}
		took += duration
		for _, prefix := range needed {
			if sent[prefix] < leaves {
				missing = append(missing, prefix)
			}
			if sent[prefix] == 0 {
				nowhere = append(nowhere, prefix)
			}
		}
	}
	return missing, nowhere, took, nil
}

// look returns a list of what was sent that is newer than this call, made by this call or by a concurrent one.
func (r *reader) look(ctx context.Context, rail RailSettings, family family) (map[netip.Prefix]int, int, time.Duration, error) {
	came := time.Now()
	at := lookKey{rail.Name, family}
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
		return nil, 0, 0, ctx.Err()
	}
	if look.began.After(came) {
		return look.sent, look.leaves, look.took, look.err
	}
	began := time.Now()
	look.sent, look.leaves, look.err = r.bgpd.sentPrefixes(ctx, rail, family)
	look.began, look.took = began, time.Since(began)
	if contextError(ctx) != nil {
		// This caller's time is over; those behind it must look again.
		look.began = time.Time{}
	}
	return look.sent, look.leaves, look.took, look.err
}

func newLook() *look { return &look{turn: make(chan struct{}, 1)} }
