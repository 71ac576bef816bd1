// Package reconcile makes the node's bridges and routes what its store says, and keeps them so: after a restart of this
// daemon, of Open vSwitch or of FRR, after somebody else's change, and after a pod that went without a DEL.
//
// Every rail has one worker. A pass of it looks at the bridge, plans all flows anew and programs the difference; whoever
// asks while a pass runs is served with all others by the next. Requests store first and program then, so that whatever
// is real belongs to a record; what leaves keeps its record until nothing of it is real any more.
package reconcile

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"railwright/node/internal/announce"
	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/config"
	"railwright/node/internal/metrics"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

// Pods tells which network namespaces live.
type Pods interface {
	Boot() string
	Identify(path string) (uint64, error)
	Life(attachment.Attachment, string) (collect.Life, string)
}

// Links tells of interfaces of this host.
type Links interface {
	// Up says whether it has a carrier.
	Up(name string) (bool, error)
	// Gone says whether there is none of that name; false where that could not be told.
	Gone(name string) bool
	// Within names this host's own addresses in the prefixes, each with its interface.
	Within(prefixes []netip.Prefix) ([]string, error)
}

// Teller tells those whose pod it is, where they look.
type Teller interface {
	// TellPod never waits.
	TellPod(pod attachment.Pod, reason, message string)
}

// Parts that a reconciler works with.
type Parts struct {
	Config    config.Config
	Store     *store.Store
	Switch    openvswitch.Switch
	Announcer announce.Announcer
	Directory tenants.Directory
	Pods      Pods
	Metrics   *metrics.Metrics
	Log       *slog.Logger
	// Links of this host.
	Links Links
	// Teller of what concerns single pods; nil: there is none.
	Teller Teller
	// Tombstones is the folder of DELs that plugins left.
	Tombstones string
	// Rights that this process lacks or that cannot be told, one sentence each; nil: none is looked at.
	Rights func() []string
	// Forget a retired rail for good; nil: there is none.
	Forget func(rail string) error
}

// Reconciler of one node.
type Reconciler struct {
	config      config.Config
	store       *store.Store
	openVSwitch openvswitch.Switch
	announcer   announce.Announcer
	directory   tenants.Directory
	pods        Pods
	metrics     *metrics.Metrics
	log         *slog.Logger
	links       Links
	tombstones  string
	rights      func() []string
	teller      Teller
	forget      func(rail string) error

	rails       map[string]*rail
	locks       keyLocks
	claims      *claims
	confirm     *confirmer
	withdrawals *withdrawals
	garbage     garbage
	// watch is signalled when other tenants have pods here than before.
	watch signal
	// tend is signalled when the housekeeping has something to do.
	tend    signal
	started chan struct{}
	// admission is held by ADDs from their record to their claim, and alone by who compares the two.
	admission sync.RWMutex
	// tended is when the housekeeping last came round, in Unix nanoseconds.
	tended atomic.Int64
}

// New makes one; Run starts it.
func New(parts Parts) *Reconciler {
	reconciler := &Reconciler{
		config: parts.Config, store: parts.Store, openVSwitch: parts.Switch, announcer: parts.Announcer,
		directory: parts.Directory, pods: parts.Pods, metrics: parts.Metrics, log: parts.Log,
		links: parts.Links, tombstones: parts.Tombstones, rights: parts.Rights, teller: parts.Teller, forget: parts.Forget,
		garbage: garbage{grace: defaultGrace}, rails: map[string]*rail{}, claims: newClaims(),
		confirm: newConfirmer(), withdrawals: newWithdrawals(), watch: make(signal, 1), tend: make(signal, 1), started: make(chan struct{}),
	}
	for _, configured := range parts.Config.EveryRail() {
		reconciler.rails[configured.Name] = newRail(reconciler, configured)
	}
	return reconciler
}

// Run until ctx ends. It returns once nothing of it runs any more; what is programmed stays.
func (r *Reconciler) Run(ctx context.Context) {
	r.buryLastBoot()
	for _, record := range r.store.All() {
		r.withdrawals.note(record)
		if r.rails[record.Rail] == nil {
			r.logOf(record).Error("its rail is neither configured nor known from before: what it has stays, and its addresses with it, " +
				"until the rail is in the configuration again or the machine was restarted")
		} else if r.rails[record.Rail].configured.Retired {
			r.logOf(record).Warn("its rail was taken out of the configuration: it is served until its DEL")
		}
	}
	r.claimAll(ctx)
	var group sync.WaitGroup
	for _, rail := range r.rails {
		group.Go(func() { rail.run(ctx) })
	}
	for _, loop := range []func(context.Context){
		r.followSwitch, r.followRoutes, r.followDirectory, r.confirmViews,
		r.retain, r.keepClaims,
		r.keepHouse, r.followTombstones, r.keepMetrics,
	} {
		group.Go(func() { loop(ctx) })
	}
	close(r.started)
	group.Wait()
}

// wait until requests can be served.
func (r *Reconciler) wait(ctx context.Context) error {
	select {
	case <-r.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reconciler) followSwitch(ctx context.Context) {
	for event := range events(ctx, r.openVSwitch.Events(ctx)) {
		for _, rail := range r.rails {
			if event.Bridge != "" && event.Bridge != rail.Bridge {
				continue
			}
			if event.FlowsLost {
				r.log.Warn("flows were lost and are programmed anew", "rail", rail.Name, "why", event.Why)
				rail.kick(due{flows: "flows-lost"})
			} else {
				r.log.Debug("the switch has changed", "rail", rail.Name, "why", event.Why)
				rail.kick(due{})
			}
		}
	}
}

func (r *Reconciler) followRoutes(ctx context.Context) {
	for event := range events(ctx, r.announcer.Events(ctx)) {
		r.log.Info("routes are looked at anew", "why", event.Reason)
		for _, rail := range r.rails {
			rail.kick(due{routes: "routes-changed"})
		}
	}
}

// events of a channel until it is closed or ctx ends.
func events[Event any](ctx context.Context, channel <-chan Event) func(yield func(Event) bool) {
	return func(yield func(Event) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-channel:
				if !open || !yield(event) {
					return
				}
			}
		}
	}
}

// passed is called after every pass of a rail.
func (r *Reconciler) passed(rail *rail, result *outcome, took time.Duration) {
	r.metrics.Pass(rail.Name, result.complete(), took)
	if result.flows != nil {
		r.log.Warn("the flows could not be made what they should be", "rail", rail.Name, "error", result.flows)
	}
	if result.routes != nil {
		r.log.Warn("the routes could not be made what they should be", "rail", rail.Name, "error", result.routes)
	}
	r.tend.again()
}

func (r *Reconciler) repaired(rail *rail, cause, name string, count int) {
	if count == 0 {
		return
	}
	r.metrics.Repaired(rail.Name, cause, count)
	r.log.Info("repaired", "rail", rail.Name, "what", name, "cause", cause, "count", count)
}

func (r *Reconciler) kickRail(name string, more due) {
	if rail := r.rails[name]; rail != nil {
		rail.kick(more)
	}
}

func (r *Reconciler) logOf(record store.Record) *slog.Logger {
	return r.log.With("namespace", record.Pod.Namespace, "pod", record.Pod.Name, "network", record.Key.Network,
		"container", record.Key.ContainerID, "interface", record.Key.Interface, "rail", record.Rail)
}
