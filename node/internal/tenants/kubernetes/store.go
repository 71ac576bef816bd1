// Package kubernetes implements the tenant directory in the API server: a NodeAddresses object for each node, and
// Tenant and TenantPeering objects that operators write. deploy/crds has their definitions.
package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"railwright/node/internal/release"
	"railwright/node/internal/tenants"
)

// gather is how long changes are collected before they are reported, because changes of many nodes arrive one by one.
const gather = 5 * time.Millisecond

// patience is how long to wait for this node's own publication in the feed before asking the API server whether it is
// gone.
const patience = 2 * time.Second

// Store is a tenants.Store in the API server.
type Store struct {
	node   string
	pods   []netip.Prefix
	client dynamic.Interface

	records, tenants, peerings, namespaces *feed

	news     chan struct{}
	lost     func(error)
	recorder *eventRecorder

	mutex sync.Mutex
	// parsed caches records by name with their resource version.
	parsed map[string]parsedRecord
	// current is this node's object as last written or read; published is the record in it; tried is the name of the
	// first record that was tried.
	current   *unstructured.Unstructured
	published *tenants.Record
	tried     string
	sequence  uint64
	// policy is the policy whose faults were last reported, at faultsReported.
	policy         *tenants.Policy
	faultsReported time.Time
	// moved is closed at every change.
	moved chan struct{}
}

// parsedRecord is a parsed record, or the fault of an unreadable one, at a resource version.
type parsedRecord struct {
	version string
	record  *tenants.Record
	fault   *tenants.Unreadable
}

// Config returns the configuration of a kubeconfig, or of the pod's service account if the path is empty.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure access to the API server: %w", err)
	}
	return config, nil
}

// New returns a store for a node with the pods' prefixes. It does not contact the API server yet.
func New(config *rest.Config, node string, pods []netip.Prefix, log *slog.Logger) (*Store, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "railwrightd/" + release.Version
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if log != nil {
		klog.SetSlogLogger(log.With("from", "client-go"))
	}
	store := &Store{
		node: node, pods: pods, client: client, recorder: newEventRecorder(client, node, log), news: make(chan struct{}, 1), lost: func(error) {},
		parsed: map[string]parsedRecord{}, moved: make(chan struct{}),
	}
	for resource, at := range map[schema.GroupVersionResource]**feed{
		nodeAddresses: &store.records, tenantObjects: &store.tenants, peerings: &store.peerings, namespaces: &store.namespaces,
	} {
		*at = &feed{
			resource: resource, client: client, objects: map[string]*unstructured.Unstructured{},
			changed: store.notify, lost: func(err error) { store.reportLost(fmt.Errorf("%s: %w", resource.Resource, err)) },
		}
	}
	return store, nil
}

func (s *Store) notify() {
	s.mutex.Lock()
	close(s.moved)
	s.moved = make(chan struct{})
	s.mutex.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *Store) reportLost(err error) {
	s.mutex.Lock()
	lost := s.lost
	s.mutex.Unlock()
	lost(err)
}

// Watch implements tenants.Store.
func (s *Store) Watch(ctx context.Context, changed func(tenants.Snapshot), lost func(error)) {
	s.mutex.Lock()
	s.lost = lost
	s.mutex.Unlock()
	var feeds sync.WaitGroup
	for _, feed := range []*feed{s.records, s.tenants, s.peerings, s.namespaces} {
		feeds.Go(func() { feed.run(ctx) })
	}
	feeds.Go(func() { s.recorder.run(ctx) })
	defer feeds.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		}
		timer := time.NewTimer(gather)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if snapshot, ok := s.snapshot(); ok {
			changed(snapshot)
		}
	}
}

// snapshot returns the state of the feeds. ok is false before the records are listed.
func (s *Store) snapshot() (tenants.Snapshot, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	objects, ok := s.records.all()
	if !ok {
		return tenants.Snapshot{}, false
	}
	s.sequence++
	snapshot := s.gatherRecords(objects)
	snapshot.Sequence = s.sequence
	groups, complete := s.tenants.all()
	pairs, both := s.peerings.all()
	spaces, known := s.namespaces.all()
	if complete && both && known {
		snapshot.Policy = policy(groups, pairs, spaces)
		if now := time.Now(); now.Sub(s.faultsReported) > repeatAfter || !reflect.DeepEqual(s.policy, snapshot.Policy) {
			s.faultsReported, s.policy = now, snapshot.Policy
			s.recordFaults(snapshot.Policy, groups, pairs)
		}
	}
	return snapshot, true
}

// gatherRecords returns the records of the objects. It parses only changed objects.
func (s *Store) gatherRecords(objects []*unstructured.Unstructured) tenants.Snapshot {
	snapshot := tenants.Snapshot{Records: make(map[string]*tenants.Record, len(objects)), Unreadable: map[string]tenants.Unreadable{}}
	kept := make(map[string]parsedRecord, len(objects))
	for _, object := range objects {
		name := object.GetName()
		entry := s.parsed[name]
		if entry.version != object.GetResourceVersion() || entry.version == "" {
			entry = parsedRecord{version: object.GetResourceVersion()}
			var err error
			entry.record, err = record(object)
			if err != nil {
				suspected := tenants.SuspectObject(object.Object["spec"], err)
				entry.fault = &suspected
				s.recordUnreadable(object, err)
			}
		}
		kept[name] = entry
		if entry.fault != nil {
			snapshot.Unreadable[name] = *entry.fault
		} else {
			snapshot.Records[name] = entry.record
		}
	}
	s.parsed = kept
	return snapshot
}

// policy returns the policy of the objects, in the order of their names.
func policy(groups, pairs, spaces []*unstructured.Unstructured) *tenants.Policy {
	alphabetic := func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) }
	slices.SortFunc(groups, alphabetic)
	slices.SortFunc(pairs, alphabetic)
	byName := make(map[string]*unstructured.Unstructured, len(spaces))
	for _, space := range spaces {
		byName[space.GetName()] = space
	}
	result := &tenants.Policy{}
	for _, object := range groups {
		result.Tenants = append(result.Tenants, tenant(object))
	}
	for _, object := range pairs {
		result.Peerings = append(result.Peerings, peering(object, byName))
	}
	return result
}

// Read implements tenants.Store. Once the feed has this node's last publication, it has everything that was published
// before. Before the first publication Read lists the records in the API server, to find this node's record of an
// earlier run.
func (s *Store) Read(ctx context.Context) (tenants.Snapshot, error) {
	s.mutex.Lock()
	published := s.published
	s.mutex.Unlock()
	if published == nil {
		list, err := s.client.Resource(nodeAddresses).List(ctx, metav1.ListOptions{})
		if err != nil {
			return tenants.Snapshot{}, err
		}
		var objects []*unstructured.Unstructured
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return s.gatherRecords(objects), nil
	}
	doubt := time.NewTimer(patience)
	defer doubt.Stop()
	for gone := false; ; {
		s.mutex.Lock()
		moved := s.moved
		s.mutex.Unlock()
		if gone || s.caughtUp(published) {
			if snapshot, ok := s.snapshot(); ok {
				return snapshot, nil
			}
		}
		select {
		case <-doubt.C:
			_, err := s.client.Resource(nodeAddresses).Get(ctx, published.ID(), metav1.GetOptions{})
			gone = apierrors.IsNotFound(err)
		case <-ctx.Done():
			return tenants.Snapshot{}, fmt.Errorf("wait for this node's record from the API server: %w", ctx.Err())
		case <-moved:
		}
	}
}

// caughtUp reports whether the feed has this node's publication.
func (s *Store) caughtUp(published *tenants.Record) bool {
	s.records.mutex.Lock()
	defer s.records.mutex.Unlock()
	object := s.records.objects[published.ID()]
	if object == nil {
		return false
	}
	revision, _, _ := unstructured.NestedInt64(object.Object, "spec", "revision")
	return revision >= published.Revision
}

// Remove implements tenants.Store. Without the finalizer the API server deletes the object.
func (s *Store) Remove(ctx context.Context, gone *tenants.Record) error {
	object, err := s.client.Resource(nodeAddresses).Get(ctx, gone.ID(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), func(name string) bool { return name == finalizer }))
	_, err = s.client.Resource(nodeAddresses).Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // another node was faster
	}
	return err
}

// Pace implements tenants.Store. Every write is sent to every node, so nodes of larger clusters write less often.
func (s *Store) Pace(nodes int) tenants.Pace {
	return tenants.Pace{Burst: 5, Interval: 200 * time.Millisecond * time.Duration(max(1, nodes/50))}
}
