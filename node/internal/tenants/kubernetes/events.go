package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tenants"
)

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
	api      api
	node     string
	log      *slog.Logger
	queue    chan event
	mutex    sync.Mutex
	reported map[string]time.Time
}

func newEventRecorder(api api, node string, log *slog.Logger) *eventRecorder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &eventRecorder{
		api: api, node: node, log: log, queue: make(chan event, maxQueued), reported: map[string]time.Time{},
	}
}

// run creates the queued events until ctx ends.
func (t *eventRecorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case queued := <-t.queue:
			bounded, cancel := context.WithTimeout(ctx, tellBound)
			_, err := t.api.create(bounded, place{resource: "events", namespace: queued.Metadata["namespace"]}, queued)
			cancel()
			// All nodes report the same problem under the same name; one event is enough.
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.log.Debug("cannot create event", "name", queued.Metadata["name"], "error", err)
			}
		}
	}
}

// record queues an event about an object, unless it was recently created. Equal events of all nodes have the same name.
func (t *eventRecorder) record(subject about, reason, message string) {
	sum := sha256.Sum256([]byte(subject.UID + "\x00" + subject.Name + "\x00" + reason + "\x00" + message))
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
	case t.queue <- t.event(subject, key, reason, message, now):
	default:
		t.log.Debug("dropped an event: queue is full", "name", subject.Name, "message", message)
	}
}

// event is an Event of Kubernetes.
type event struct {
	APIVersion     string            `json:"apiVersion"`
	Kind           string            `json:"kind"`
	Metadata       map[string]string `json:"metadata"`
	InvolvedObject about             `json:"involvedObject"`
	Reason         string            `json:"reason"`
	Message        string            `json:"message"`
	Type           string            `json:"type"`
	Source         map[string]string `json:"source"`
	Count          int               `json:"count"`
	FirstTimestamp string            `json:"firstTimestamp"`
	LastTimestamp  string            `json:"lastTimestamp"`
}

// about names the object of an event.
type about struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

func (t *eventRecorder) event(subject about, key, reason, message string, now time.Time) event {
	at := now.UTC().Format(time.RFC3339)
	return event{
		APIVersion: "v1", Kind: "Event", Type: "Warning", Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Metadata: map[string]string{
			"namespace": cmp.Or(subject.Namespace, clusterNamespace), "name": subject.Name[:min(len(subject.Name), 200)] + "." + key,
		},
		InvolvedObject: subject, Reason: reason, Message: message[:min(len(message), longestMessage)],
		Source: map[string]string{"component": "railwrightd", "host": t.node},
	}
}

// NotifyPod implements reconcile.Notifier.
func (s *Store) NotifyPod(pod attachment.Pod, reason, message string) {
	if pod.Namespace == "" || pod.Name == "" {
		return
	}
	s.recorder.record(about{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, reason, message)
}

// recordFaults creates events for operators' objects that are ignored.
func (s *Store) recordFaults(policy tenants.Policy, groups, pairs map[string]item) {
	recordFor := func(kind string, object item, reason string) {
		s.recorder.record(about{
			APIVersion: group + "/" + version, Kind: kind, Name: object.Metadata.Name, UID: object.Metadata.UID,
		}, "NotHeeded", reason)
	}
	for _, fault := range slices.Concat(tenants.NewRules(policy).Faults(), tenants.Beyond(policy, s.pods)) {
		if object, found := groups[fault.Tenant]; found {
			recordFor("Tenant", object, fault.Reason)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(pairs)) {
		if fault := policy.Peerings[i].Fault; fault != "" {
			recordFor("TenantPeering", pairs[name], fault)
		}
	}
}
