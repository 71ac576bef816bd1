// Package directory is a node's part in the tenant directory. The documentation of package tenants has the rules.
package directory

import (
	"context"
	"errors"
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

// rule is a rule that the simulation leaves out to show what it is for.
type rule string

const (
	claims        rule = "an address has one claim"
	claimFirst    rule = "claim, then read"
	readAtAdd     rule = "read at every ADD"
	readPeers     rule = "read the peers too"
	neverBackward rule = "never take an older state"
	syncRead      rule = "sync what was read"
	membersFirst  rule = "rewrite the members, then delete the claim"
	drain         rule = "hold an address until its packets are gone"
	epochGate     rule = "wait until every machine has published in the epoch"
	epochMembers  rule = "take only members of this epoch"
	epochNodes    rule = "wait for the machines that joined after the backup"
	seeRestore    rule = "stop when versions go back"
)

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

// turn is a mutex that one can wait for with a context.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

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

func (d *Directory) epoch() string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.state.epoch
}

// ask calls the store and records whether it can be asked.
func (d *Directory) ask(ctx context.Context, name string, do func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	err := do(bounded)
	switch {
	case err == nil, errors.Is(err, tenants.ErrExists), errors.Is(err, tenants.ErrConflict), errors.Is(err, tenants.ErrGone):
		d.reach(nil)
	case ctx.Err() == nil:
		d.reach(fmt.Errorf("%s: %w", name, err))
		err = fmt.Errorf("%w: %s: %w", tenants.ErrUnreachable, name, err)
	default:
		err = fmt.Errorf("%w: %s: %w", tenants.ErrUnreachable, name, err)
	}
	return err
}

// reach records that the store answered, or that it could not be asked.
func (d *Directory) reach(fault error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case fault != nil && d.lost == "":
		d.lostSince = time.Now()
		d.log.Warn("tenant directory is unreachable", "error", fault)
	case fault == nil && d.lost != "":
		d.log.Info("tenant directory is reachable again", "away", time.Since(d.lostSince).Round(time.Millisecond))
	}
	d.lost = ""
	if fault != nil {
		d.lost = fault.Error()
	}
}

// errRestored means that the store's version went back.
var errRestored = fmt.Errorf("%w: it was restored from a backup", tenants.ErrUnreachable)

func restoredText(to string) string {
	return fmt.Sprintf("tenant directory went back to %s, so it was restored from a backup; raise its epoch (`railwrightd epoch`) once it is "+
		"complete", to)
}

// goneBy returns an error if a version is older than one that this node had gone by before.
func (d *Directory) goneBy(version, before uint64) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if version < before && d.settings.without != seeRestore {
		if d.restored == "" {
			d.log.Error("the tenant directory went back", "version", version, "before", before)
		}
		d.restored = restoredText(fmt.Sprintf("version %d from %d", version, before))
		return errRestored
	}
	d.gone = max(d.gone, version)
	return nil
}

// before returns the version that no later answer may be older than.
func (d *Directory) before() uint64 {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.gone
}

// write creates or replaces an object.
func (d *Directory) write(
	ctx context.Context, name string, object tenants.Object, do func(context.Context, tenants.Object) (tenants.Object, error),
) (written tenants.Object, err error) {
	before := d.before()
	err = d.ask(ctx, name, func(ctx context.Context) (err error) {
		written, err = do(ctx, object)
		return err
	})
	if err != nil {
		return object, err
	}
	if object.UID != "" && written.Version == object.Version {
		return written, nil // it had this content already
	}
	return written, d.goneBy(written.Version, before)
}

// list lists objects. The list is not older than anything that this node had gone by before the call.
func (d *Directory) list(ctx context.Context, kind tenants.Kind, space string) (list tenants.List, err error) {
	before := d.before()
	err = d.ask(ctx, "list "+string(kind), func(ctx context.Context) (err error) {
		list, err = d.store.List(ctx, kind, space)
		return err
	})
	if err != nil {
		return list, err
	}
	return list, d.goneBy(list.Version, before)
}

// TenantOf implements tenants.Directory.
func (d *Directory) TenantOf(ctx context.Context, namespace string) (string, error) {
	tenant, err := d.grouped(ctx, namespace)
	if err != nil {
		return "", err
	}
	if _, single := tenants.SingleNamespace(tenant); !single {
		return tenant, nil
	}
	named, err := d.lookUp(ctx, namespace)
	if err != nil {
		return "", err
	}
	return tenants.NamespaceTenant(named), nil
}

// grouped returns the tenant of a namespace by the policy, once there is one.
func (d *Directory) grouped(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, policyWait)
	defer cancel()
	for {
		d.mutex.Lock()
		rules, moved, fault := d.state.rules, d.moved, d.policyFault
		d.mutex.Unlock()
		if rules != nil {
			return rules.TenantOf(namespace)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: tenants are not known yet %s", tenants.ErrUnreachable, fault)
		case <-moved:
		}
	}
}

// noUID is the UID of a namespace that does not exist.
const noUID = "-"

// lookUp finds out which namespace has a name now.
func (d *Directory) lookUp(ctx context.Context, name string) (named tenants.Namespace, err error) {
	fresh, again := false, true
	for again {
		d.mutex.Lock()
		d.asked++
		asked := d.asked
		d.mutex.Unlock()
		err = d.ask(ctx, "read namespace", func(ctx context.Context) error {
			named, err = d.store.Namespace(ctx, name)
			return err
		})
		if errors.Is(err, tenants.ErrGone) {
			// A namespace that comes later is another one; its peerings are younger.
			named, err = tenants.Namespace{Name: name, UID: noUID}, nil
		}
		if err != nil {
			return named, err
		}
		d.act(func(s *state) {
			known, found := s.named[name]
			if again = s.asked[name] > asked && !found; again {
				return // a peering came meanwhile
			}
			if s.asked[name] > asked {
				named = known // the answer to a later question came first
				return
			}
			s.asked[name] = asked
			if fresh = !found || known.UID != named.UID; fresh {
				s.named[name] = named
				s.rescope()
			}
		})
	}
	if fresh {
		err = d.journal.write(entry{Namespace: &named})
	}
	if err == nil && named.UID == noUID {
		err = fmt.Errorf("%w: there is no namespace %.80q", tenants.ErrNoTenant, name)
	}
	return named, err
}

// Regroup implements tenants.Directory.
func (d *Directory) Regroup(ctx context.Context, namespace, before string) (string, error) {
	d.mutex.Lock()
	rules := d.state.rules
	d.mutex.Unlock()
	if rules == nil {
		return before, nil
	}
	tenant, err := rules.TenantOf(namespace)
	if err != nil || tenant == tenants.Display(before) {
		return before, err
	}
	if _, single := tenants.SingleNamespace(before); single {
		named, err := d.lookUp(ctx, namespace)
		if err != nil || tenants.NamespaceTenant(named) != before {
			return before, err // its namespace is gone
		}
	}
	return d.TenantOf(ctx, namespace)
}

// Since implements tenants.Directory.
func (d *Directory) Since(version uint64) tenants.Change {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.state.since(version)
}

// Version implements tenants.Directory.
func (d *Directory) Version() uint64 {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.state.version
}

// Changed implements tenants.Directory.
func (d *Directory) Changed() <-chan struct{} {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.changed
}

// Holds implements tenants.Directory.
func (d *Directory) Holds(addresses []netip.Addr) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return !slices.ContainsFunc(addresses, func(address netip.Addr) bool {
		held := d.state.owns[address]
		return held == nil || held.Lost || held.Phase != granted
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

// pause waits and returns false if ctx ended.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
