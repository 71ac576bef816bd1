// Package reconcile makes the node's bridges and routes match its store: after a restart of this daemon, of Open
// vSwitch or of FRR, after a change by another program, and after a pod that disappeared without a DEL.
//
// Every rail has a worker. Its pass reads the bridge, plans all flows again and programs the difference; all requests
// that arrive during a pass share the next one. Requests store first and program afterwards, so that everything real
// belongs to a record. A leaving attachment keeps its record until nothing of it is real.
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

// Pods reports which network namespaces are alive.
type Pods interface {
	Boot() string
	Identify(path string) (uint64, error)
	Life(attachment.Attachment, string) (collect.Life, string)
}

// Links reads interfaces of this host.
type Links interface {
	// Up reports whether the interface has a carrier.
	Up(name string) (bool, error)
	// Gone reports whether no interface has the name. It returns false if that is unknown.
	Gone(name string) bool
	// Within returns this host's addresses in the prefixes, with their interfaces.
	Within(prefixes []netip.Prefix) ([]string, error)
}

// Notifier sends events about pods to their users.
type Notifier interface {
	// NotifyPod must not block.
	NotifyPod(pod attachment.Pod, reason, message string)
}

// NodeReporter tells the cluster about this node.
type NodeReporter interface {
	// Report sets the problems of the rails. It must not block.
	Report(problems []string)
}

// Parts are the dependencies of a Reconciler.
type Parts struct {
	Config    config.Config
	Store     *store.Store
	Switch    openvswitch.Switch
	Announcer announce.Announcer
	Directory tenants.Directory
	Pods      Pods
	Metrics   *metrics.Metrics
	Log       *slog.Logger
	// Links reads interfaces of this host.
	Links Links
	// Notifier sends events about pods. It may be nil.
	Notifier Notifier
	// Node tells the cluster about rails that are down. It may be nil.
	Node NodeReporter
	// Tombstones is the folder of DELs that plugins left.
	Tombstones string
	// Rights returns the rights that this process lacks or cannot verify, a sentence each. It may be nil.
	Rights func() []string
	// Forget removes a retired rail permanently. It may be nil.
	Forget func(rail string) error
}

// Reconciler reconciles a node.
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
	notifier    Notifier
	node        NodeReporter
	forget      func(rail string) error

	rails       map[string]*rail
	locks       keyLocks
	claims      *claims
	withdrawals *withdrawals
	garbage     garbage
	// tend is signalled when the housekeeping has work.
	tend    signal
	started chan struct{}
	// admission is held shared by ADDs from their record to their claim, and exclusively while the two are compared.
	admission sync.RWMutex
	// tended is the time of the last housekeeping round in Unix nanoseconds.
	tended atomic.Int64
	// large is held by the rail that plans the flows of many members.
	large sync.Mutex
}

// New returns a Reconciler. Run starts it.
func New(parts Parts) *Reconciler {
	reconciler := &Reconciler{
		config: parts.Config, store: parts.Store, openVSwitch: parts.Switch, announcer: parts.Announcer,
		directory: parts.Directory, pods: parts.Pods, metrics: parts.Metrics, log: parts.Log,
		links: parts.Links, tombstones: parts.Tombstones, rights: parts.Rights, notifier: parts.Notifier, forget: parts.Forget,
		node:    parts.Node,
		garbage: garbage{grace: defaultGrace}, rails: map[string]*rail{}, claims: newClaims(),
		withdrawals: newWithdrawals(), tend: make(signal, 1), started: make(chan struct{}),
	}
	for _, configured := range parts.Config.EveryRail() {
		reconciler.rails[configured.Name] = newRail(reconciler, configured)
	}
	return reconciler
}

// Run reconciles until ctx ends, and waits for all goroutines. What is programmed stays.
func (r *Reconciler) Run(ctx context.Context) {
	r.releaseLastBoot()
	for _, record := range r.store.All() {
		r.withdrawals.note(record)
		if r.rails[record.Rail] == nil {
			r.logFor(record).Error("its rail is neither configured nor remembered: flows, routes and addresses stay " +
				"until the rail is configured again or the machine restarts")
		} else if r.rails[record.Rail].configured.Retired {
			r.logFor(record).Warn("its rail is no longer configured; it is served until its DEL")
		}
	}
	r.claimAll(ctx)
	var group sync.WaitGroup
	for _, rail := range r.rails {
		group.Go(func() { rail.run(ctx) })
	}
	for _, loop := range []func(context.Context){
		r.followSwitch, r.followRoutes, r.followDirectory,
		r.retain, r.keepClaims,
		r.runHousekeeping, r.followTombstones, r.keepMetrics, r.watchRails,
	} {
		group.Go(func() { loop(ctx) })
	}
	close(r.started)
	group.Wait()
}

// wait waits until requests can be served.
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
				r.log.Warn("flows were lost; programming them again", "rail", rail.Name, "why", event.Reason)
				rail.kick(due{flows: "flows-lost"})
			} else {
				r.log.Debug("switch changed", "rail", rail.Name, "why", event.Reason)
				rail.kick(due{})
			}
		}
	}
}

func (r *Reconciler) followRoutes(ctx context.Context) {
	for event := range events(ctx, r.announcer.Events(ctx)) {
		r.log.Info("checking routes", "why", event.Reason)
		for _, rail := range r.rails {
			rail.kick(due{routes: "routes-changed"})
		}
	}
}

// events yields the events of a channel until it is closed or ctx ends.
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

// recordPass records the result of a pass.
func (r *Reconciler) recordPass(rail *rail, result *outcome, took time.Duration) {
	r.metrics.Pass(rail.Name, result.complete(), took)
	if result.flows != nil {
		r.log.Warn("cannot reconcile flows", "rail", rail.Name, "error", result.flows)
	}
	if result.routes != nil {
		r.log.Warn("cannot reconcile routes", "rail", rail.Name, "error", result.routes)
	}
	r.tend.notify()
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

func (r *Reconciler) logFor(record store.Record) *slog.Logger {
	return r.log.With("namespace", record.Pod.Namespace, "pod", record.Pod.Name, "network", record.Key.Network,
		"container", record.Key.ContainerID, "interface", record.Key.Interface, "rail", record.Rail)
}
