package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tenants"
)

var events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

const (
	// mostTold at once; what comes beside them is in the log and in `railwrightd status` alone.
	mostTold = 64
	// toldAgain after this long: the API server keeps events for an hour.
	toldAgain = 50 * time.Minute
	tellBound = 5 * time.Second
	// longestMessage is what Kubernetes takes.
	longestMessage = 1024
	// ofTheCluster: events of objects that have no namespace are in this one.
	ofTheCluster = "default"
)

// teller makes Kubernetes events. Nobody waits for it, and what cannot be told is not tried again.
type teller struct {
	client   dynamic.Interface
	node     string
	log      *slog.Logger
	queue    chan *unstructured.Unstructured
	mutex    sync.Mutex
	reported map[string]time.Time
}

func newTeller(client dynamic.Interface, node string, log *slog.Logger) *teller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &teller{
		client: client, node: node, log: log, queue: make(chan *unstructured.Unstructured, mostTold), reported: map[string]time.Time{},
	}
}

// run until ctx ends.
func (t *teller) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-t.queue:
			bounded, cancel := context.WithTimeout(ctx, tellBound)
			_, err := t.client.Resource(events).Namespace(event.GetNamespace()).Create(bounded, event, metav1.CreateOptions{})
			cancel()
			// Each node tells of what concerns all, under one name: the first is enough.
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.log.Debug("an event could not be told", "name", event.GetName(), "error", err)
			}
		}
	}
}

// tell of an object, once in a while. Whoever tells the same of it gives it the same name.
func (t *teller) tell(about map[string]any, reason, message string) {
	uid, _ := about["uid"].(string)
	name, _ := about["name"].(string)
	sum := sha256.Sum256([]byte(uid + "\x00" + name + "\x00" + reason + "\x00" + message))
	key := hex.EncodeToString(sum[:8])
	now := time.Now()
	t.mutex.Lock()
	recent := now.Sub(t.reported[key]) < toldAgain
	for old, at := range t.reported {
		if now.Sub(at) >= toldAgain {
			delete(t.reported, old)
		}
	}
	if !recent {
		t.reported[key] = now
	}
	t.mutex.Unlock()
	if recent {
		return
	}
	select {
	case t.queue <- t.event(about, key, reason, message, now):
	default:
		t.log.Debug("too many events at once", "name", name, "message", message)
	}
}

func (t *teller) event(about map[string]any, key, reason, message string, now time.Time) *unstructured.Unstructured {
	space, _ := about["namespace"].(string)
	if space == "" {
		space = ofTheCluster
	}
	name, _ := about["name"].(string)
	at := now.UTC().Format(time.RFC3339)
	event := &unstructured.Unstructured{Object: map[string]any{
		"involvedObject": about, "reason": reason, "message": message[:min(len(message), longestMessage)], "type": "Warning",
		"source": map[string]any{"component": "railwrightd", "host": t.node}, "count": int64(1),
		"firstTimestamp": at, "lastTimestamp": at,
	}}
	event.SetAPIVersion("v1")
	event.SetKind("Event")
	event.SetNamespace(space)
	event.SetName(name[:min(len(name), 200)] + "." + key)
	return event
}

// TellPod is of reconcile.Teller.
func (s *Store) NotifyPod(pod attachment.Pod, reason, message string) {
	if pod.Namespace == "" || pod.Name == "" {
		return
	}
	s.teller.tell(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "namespace": pod.Namespace, "name": pod.Name, "uid": pod.UID,
	}, reason, message)
}

// tellFaults of the objects that people wrote and that are not heeded, at these objects.
func (s *Store) tellFaults(policy *tenants.Policy, groups, pairs []*unstructured.Unstructured) {
	tell := func(object *unstructured.Unstructured, reason string) {
		s.teller.tell(map[string]any{
			"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "name": object.GetName(), "uid": string(object.GetUID()),
		}, "NotHeeded", reason)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, object := range groups {
		byName[object.GetName()] = object
	}
	for _, fault := range slices.Concat(tenants.NewRules(*policy).Faults(), tenants.Beyond(*policy, s.pods)) {
		if object := byName[fault.Tenant]; object != nil {
			tell(object, fault.Reason)
		}
	}
	for i, peering := range policy.Peerings {
		if peering.Fault != "" {
			tell(pairs[i], peering.Fault)
		}
	}
}

// tellUnreadable records: what they name is nobody else's.
func (s *Store) tellUnreadable(object *unstructured.Unstructured, cause error) {
	s.teller.tell(map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "name": object.GetName(), "uid": string(object.GetUID()),
	}, "Quarantined", "it cannot be read, and what it names is nobody else's: "+cause.Error())
}
