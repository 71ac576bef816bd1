package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
)

// Run creates the queued events until ctx ends. It does not retry those that fail. All nodes report the same problem under
// the same name, and one event is enough; client-go's recorders name events by time, so each node would have its own.
func (s *Store) Run(ctx context.Context) {
	repeat := time.NewTicker(repeatAfter)
	defer repeat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-repeat.C:
			s.reported.Clear()
		case event := <-s.events:
			bounded, cancel := context.WithTimeout(ctx, tellBound)
			at := place{prefix: core, namespace: event.GetNamespace(), resource: "events"}
			err := do(bounded, s.api.request("POST", at).Body(event), nil)
			cancel()
			if err != nil && !apierrors.IsAlreadyExists(err) {
				s.log.Debug("cannot create event", "name", event.GetName(), "error", err)
			}
		}
	}
}

// record queues an event about an object, unless it was recently queued. It does not block. The namespace is "" for an object
// without one.
func (s *Store) record(version, kind, namespace, name, uid, reason, message string) {
	sum := sha256.Sum256([]byte(strings.Join([]string{uid, name, reason, message}, "\x00")))
	key := hex.EncodeToString(sum[:8])
	if _, recent := s.reported.LoadOrStore(key, true); recent {
		return
	}
	at, space := time.Now().UTC().Format(time.RFC3339), cmp.Or(namespace, metav1.NamespaceDefault)
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "type": "Warning", "count": 1, "firstTimestamp": at, "lastTimestamp": at,
		"metadata":       map[string]any{"namespace": space, "name": name[:min(len(name), 200)] + "." + key},
		"involvedObject": map[string]any{"apiVersion": version, "kind": kind, "namespace": namespace, "name": name, "uid": uid},
		"reason":         reason, "message": message[:min(len(message), longestMessage)],
		"source": map[string]any{"component": "railwrightd", "host": s.node},
	}}
	select {
	case s.events <- event:
	default:
		s.log.Debug("dropped an event: queue is full", "name", name, "message", message)
	}
}

// NotifyPod implements reconcile.Notifier.
func (s *Store) NotifyPod(pod attachment.Pod, reason, message string) {
	if pod.Namespace != "" && pod.Name != "" {
		s.record("v1", "Pod", pod.Namespace, pod.Name, pod.UID, reason, message)
	}
}

// recordFaults creates events for operators' objects that are ignored.
func (s *Store) recordFaults(policy tenants.Policy, groups, pairs map[string]item) {
	recordFor := func(kind string, object item, reason string) {
		s.record(group+"/"+version, kind, "", object.Metadata.Name, object.Metadata.UID, "NotHeeded", reason)
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
