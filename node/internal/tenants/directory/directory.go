// Package directory is a node's part in the tenant directory. The documentation of package tenants has the rules.
package directory

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"railwright/node/internal/tenants"
)

const (
	// replyTimeout bounds a call of the store.
	replyTimeout = 5 * time.Second
	// Range of pauses between retries.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// mendEvery is how often lost Members objects are written again; selfEvery is how often the own RailNode is looked at.
	mendEvery, selfEvery = time.Second, 30 * time.Second
	// policyWait is how long a request waits for the first policy.
	policyWait = 2 * time.Second
)

// Settings configure a node's part.
type Settings struct {
	Node string
	// Folder is the folder for this node's state. It is created if missing.
	Folder string
	Store  tenants.Store
	Log    *slog.Logger
	// Pods are the pods' prefixes of this node's rails. A Tenant's prefixes beyond them are a problem; nil means no limit.
	Pods []netip.Prefix
	// Machine and Boot are the machine's ID, unless the store knows it, and its boot ID.
	Machine, Boot string

	// without is a rule that is left out, by tests only.
	without rule
}

// Directory is a tenants.Directory.
type Directory struct {
	settings Settings
	store    tenants.Store
	log      *slog.Logger
	journal  *journal
	ctx      context.Context
	end      context.CancelFunc
	done     sync.WaitGroup
	damaged  string

	// entering is held while this node publishes in an epoch.
	entering turn

	mutex sync.Mutex
	self  self
	state *state
	// changed is closed when the view changes; moved when the policy, the tenants or the epoch do.
	changed, moved chan struct{}
	// node is this machine's RailNode as last written, and passed the epoch in which every machine has published.
	node    tenants.Object
	passed  string
	machine tenants.Machine
	// half means that not everything was published in the epoch yet.
	half bool
	// round grows when all lists must be read again.
	round      int
	publishers map[string]*publisher
	// gone is the latest version that this node has gone by.
	gone uint64
	// asked counts the questions for namespaces.
	asked uint64
	// The reasons why nothing is claimed; "" if there is none.
	lost, policyFault, restored, waiting string
	lostSince                            time.Time
}

var _ tenants.Directory = (*Directory)(nil)

// Open opens a node's part until ctx ends or Close is called. It does not wait for the store.
func Open(ctx context.Context, settings Settings) (*Directory, error) {
	if err := tenants.CheckNode(settings.Node); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(settings.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("tenant directory: %w", err)
	}
	journal, damaged, err := openJournal(settings.Folder, settings.Node)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	opened := &Directory{
		settings: settings, store: settings.Store, log: settings.Log, journal: journal, ctx: ctx, end: end, damaged: damaged,
		entering: make(turn, 1), changed: make(chan struct{}), moved: make(chan struct{}), publishers: map[string]*publisher{},
	}
	if opened.log == nil {
		opened.log = slog.New(slog.DiscardHandler)
	}
	opened.restore()
	for _, loop := range []func(context.Context){opened.follow, opened.followEpoch, opened.followPolicy, opened.mend} {
		opened.done.Go(func() { loop(ctx) })
	}
	return opened, nil
}

// restore takes over what the journal has.
func (d *Directory) restore() {
	kept := d.journal.kept
	d.self = kept.self
	d.state = newState(tenants.NodeName(kept.self.Node, kept.self.Instance), d.settings.Pods)
	s := d.state
	s.without = d.settings.without
	for _, epoch := range kept.epochs {
		s.enter(epoch)
	}
	for name, named := range kept.named {
		s.named[name] = named
	}
	if kept.policy != nil {
		s.policy, s.rules = kept.policy, tenants.NewRules(*kept.policy)
	}
	for address, held := range kept.owns {
		held.since = time.Now()
		s.owns[address] = &held
	}
	s.rescope()
	s.order++
	for tenant, saved := range kept.spaces {
		if held := s.spaces[tenant]; held != nil {
			held.floor = saved.floor
			for node, published := range saved.objects {
				s.put(tenant, node, published)
			}
			d.gone = max(d.gone, saved.floor)
		}
	}
	for address := range s.owns {
		s.show(address)
	}
}

// Close stops the node's part and waits for its end.
func (d *Directory) Close() {
	d.end()
	d.done.Wait()
	d.journal.close()
}

// act changes the state and notifies.
func (d *Directory) act(do func(*state)) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	version := d.state.version
	do(d.state)
	if d.state.version != version {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	if d.state.redrawn > version {
		d.move()
	}
}

// move notifies of a change of the policy, the tenants or the epoch. The caller holds the mutex.
func (d *Directory) move() {
	close(d.moved)
	d.moved = make(chan struct{})
}

// look reads the state.
func look[T any](d *Directory, do func(*state) T) T {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return do(d.state)
}

func (d *Directory) epoch() string { return look(d, func(s *state) string { return s.epoch }) }

// own returns what this node has of an address; without a phase it has nothing.
func (d *Directory) own(address netip.Addr) own {
	return look(d, func(s *state) (found own) {
		if held := s.owns[address]; held != nil {
			found = *held
		}
		return found
	})
}

// Since implements tenants.Directory.
func (d *Directory) Since(version uint64) tenants.Change {
	return look(d, func(s *state) tenants.Change { return s.since(version) })
}

// Version implements tenants.Directory.
func (d *Directory) Version() uint64 { return look(d, func(s *state) uint64 { return s.version }) }

// Changed implements tenants.Directory.
func (d *Directory) Changed() <-chan struct{} {
	return look(d, func(*state) chan struct{} { return d.changed })
}

// Holds implements tenants.Directory.
func (d *Directory) Holds(addresses []netip.Addr) bool {
	return !slices.ContainsFunc(addresses, func(address netip.Addr) bool {
		held := d.own(address)
		return held.Lost || held.Phase != granted
	})
}

// Held implements tenants.Directory.
func (d *Directory) Held() (count int) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, held := range d.state.owns {
		if held.Phase == withdrawn {
			count++
		}
	}
	return count
}

// Stopped implements tenants.Directory.
func (d *Directory) Stopped() []string {
	fault := d.journal.failed()
	d.mutex.Lock()
	defer d.mutex.Unlock()
	var problems []string
	if d.lost != "" {
		problems = append(problems, fmt.Sprintf("tenant directory is unreachable since %s, keeping the last state: %s",
			d.lostSince.UTC().Format(time.RFC3339), d.lost))
	}
	if fault != nil {
		problems = append(problems, fmt.Sprintf("cannot write the tenant directory's state, so nothing is claimed: %v", fault))
	}
	if d.restored != "" {
		problems = append(problems, d.restored)
	}
	if d.waiting != "" {
		problems = append(problems, d.waiting)
	}
	if d.policyFault != "" && d.state.rules == nil {
		problems = append(problems, "tenants are unknown: "+d.policyFault)
	}
	return problems
}

// Problems implements tenants.Directory.
func (d *Directory) Problems() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	problems := d.state.problems()
	if d.damaged != "" {
		problems = append(problems, d.damaged)
	}
	if d.policyFault != "" && d.state.rules != nil {
		problems = append(problems, "tenants stay as they were: "+d.policyFault)
	}
	return problems
}

// names returns some names for a message.
func names(all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	text := strings.Join(all[:min(len(all), maxNamed)], ", ")
	if more := len(all) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
