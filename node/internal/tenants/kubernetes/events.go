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
	// maxQueued limits the queued events. Further ones appear only in the log and in `railwrightd status`.
	maxQueued = 64
	// repeatAfter is the interval of repeated events: the API server keeps events for an hour.
	repeatAfter = 50 * time.Minute
	tellBound   = 5 * time.Second
	// longestMessage is Kubernetes' limit.
	longestMessage = 1024
	// clusterNamespace is the namespace of events of objects without a namespace.
	clusterNamespace = "default"
)

// eventRecorder creates Kubernetes events. It never blocks its callers, and does not retry failed events.
type eventRecorder struct {
	client   dynamic.Interface
	node     string
	log      *slog.Logger
	queue    chan *unstructured.Unstructured
	mutex    sync.Mutex
	reported map[string]time.Time
}

func newEventRecorder(client dynamic.Interface, node string, log *slog.Logger) *eventRecorder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &eventRecorder{
		client: client, node: node, log: log, queue: make(chan *unstructured.Unstructured, maxQueued), reported: map[string]time.Time{},
	}
}

// run creates the queued events until ctx ends.
func (t *eventRecorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-t.queue:
			bounded, cancel := context.WithTimeout(ctx, tellBound)
			_, err := t.client.Resource(events).Namespace(event.GetNamespace()).Create(bounded, event, metav1.CreateOptions{})
			cancel()
			// All nodes report the same problem under the same name; one event is enough.
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.log.Debug("cannot create event", "name", event.GetName(), "error", err)
			}
		}
	}
}

// record queues an event about an object, unless it was recently created. Equal events of all nodes have the same name.
func (t *eventRecorder) record(about map[string]any, reason, message string) {
	uid, _ := about["uid"].(string)
	name, _ := about["name"].(string)
	sum := sha256.Sum256([]byte(uid + "\x00" + name + "\x00" + reason + "\x00" + message))
	key := hex.EncodeToString(sum[:8])
	now := time.Now()
	t.mutex.Lock()
	recent := now.Sub(t.reported[key]) < repeatAfter
	for old, at := range t.reported {
		if now.Sub(at) >= repeatAfter {
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
		t.log.Debug("dropped an event: queue is full", "name", name, "message", message)
	}
}

func (t *eventRecorder) event(about map[string]any, key, reason, message string, now time.Time) *unstructured.Unstructured {
	space, _ := about["namespace"].(string)
	if space == "" {
		space = clusterNamespace
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

// NotifyPod implements reconcile.Notifier.
func (s *Store) NotifyPod(pod attachment.Pod, reason, message string) {
	if pod.Namespace == "" || pod.Name == "" {
		return
	}
	s.recorder.record(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "namespace": pod.Namespace, "name": pod.Name, "uid": pod.UID,
	}, reason, message)
}

// recordFaults creates events for operators' objects that are ignored.
func (s *Store) recordFaults(policy *tenants.Policy, groups, pairs []*unstructured.Unstructured) {
	recordFor := func(object *unstructured.Unstructured, reason string) {
		s.recorder.record(map[string]any{
			"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "name": object.GetName(), "uid": string(object.GetUID()),
		}, "NotHeeded", reason)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, object := range groups {
		byName[object.GetName()] = object
	}
	for _, fault := range slices.Concat(tenants.NewRules(*policy).Faults(), tenants.Beyond(*policy, s.pods)) {
		if object := byName[fault.Tenant]; object != nil {
			recordFor(object, fault.Reason)
		}
	}
	for i, peering := range policy.Peerings {
		if peering.Fault != "" {
			recordFor(pairs[i], peering.Fault)
		}
	}
}

// recordUnreadable creates an event for a record that cannot be parsed. The addresses in it are blocked.
func (s *Store) recordUnreadable(object *unstructured.Unstructured, cause error) {
	s.recorder.record(map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "name": object.GetName(), "uid": string(object.GetUID()),
	}, "Quarantined", "record cannot be parsed, and its addresses are blocked: "+cause.Error())
}
