// Package nodehealth tells Kubernetes whether the rails of this node are up: by a condition of the Node, and by a taint
// that keeps new pods away while one is down. Pods that run stay.
package nodehealth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Names of the condition and of the taint. deploy/access.yaml lets a daemon write these alone, of its own Node.
const (
	Condition = "RailwrightRailsUp"
	Taint     = "network.railwright.dev/rail-down"
)

const (
	// heartbeat is how often an unchanged condition is written again, so that its age shows that the daemon runs.
	heartbeat      = 5 * time.Minute
	firstRetry     = 250 * time.Millisecond
	longestRetry   = 5 * time.Second
	requestBound   = 3 * time.Second
	longestMessage = 1024
)

// Reporter writes the condition and the taint of a Node.
type Reporter struct {
	nodes dynamic.ResourceInterface
	node  string
	log   *slog.Logger
	wake  chan struct{}

	mutex    sync.Mutex
	reported bool
	problems []string
}

// New returns a reporter for a node. Run writes.
func New(client dynamic.Interface, node string, log *slog.Logger) *Reporter {
	return &Reporter{
		nodes: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}), node: node, log: log,
		wake: make(chan struct{}, 1),
	}
}

// Report sets the problems of the rails, a sentence each. It does not block.
func (r *Reporter) Report(problems []string) {
	r.mutex.Lock()
	changed := !r.reported || !slices.Equal(r.problems, problems)
	r.reported, r.problems = true, slices.Clone(problems)
	r.mutex.Unlock()
	if changed {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run writes what was reported until ctx ends, and again after errors.
func (r *Reporter) Run(ctx context.Context) {
	next := time.NewTimer(heartbeat)
	defer next.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-next.C:
		}
		r.mutex.Lock()
		reported, problems := r.reported, r.problems
		r.mutex.Unlock()
		if !reported {
			next.Reset(heartbeat)
			continue
		}
		err := r.write(ctx, problems)
		switch {
		case err == nil:
			retry = firstRetry
			next.Reset(heartbeat)
		case ctx.Err() == nil:
			r.log.Warn("cannot write the condition of the Node", "error", err)
			next.Reset(retry)
			retry = min(2*retry, longestRetry)
		}
	}
}

// write makes the Node's condition and taint say what the problems say. The resource version in each patch makes a
// concurrent change an error, because the lists are replaced as a whole.
func (r *Reporter) write(ctx context.Context, problems []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	node, err := r.nodes.Get(ctx, r.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The taint first: it is what keeps pods away.
	if taints, changed := taintsWith(node, len(problems) > 0); changed {
		node, err = r.patch(ctx, node, "spec", "taints", taints)
		if err != nil {
			return fmt.Errorf("write taint: %w", err)
		}
		r.log.Info("changed the Node's taint", "taint", Taint, "set", len(problems) > 0)
	}
	if _, err = r.patch(ctx, node, "status", "conditions", conditionsWith(node, problems, time.Now()), "status"); err != nil {
		return fmt.Errorf("write condition: %w", err)
	}
	return nil
}

func (r *Reporter) patch(
	ctx context.Context, node *unstructured.Unstructured, part, field string, list []any, subresources ...string,
) (*unstructured.Unstructured, error) {
	content, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.GetResourceVersion()}, part: map[string]any{field: list},
	})
	if err != nil {
		return nil, err
	}
	return r.nodes.Patch(ctx, r.node, types.MergePatchType, content, metav1.PatchOptions{}, subresources...)
}

// taintsWith returns the Node's taints with or without ours, and whether that changes them.
func taintsWith(node *unstructured.Unstructured, down bool) ([]any, bool) {
	taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	isOurs := func(taint any) bool {
		fields, _ := taint.(map[string]any)
		return fields["key"] == Taint
	}
	if slices.ContainsFunc(taints, isOurs) == down {
		return nil, false
	}
	rest := slices.DeleteFunc(slices.Clone(taints), isOurs)
	if down {
		rest = append(rest, map[string]any{"key": Taint, "effect": "NoSchedule"})
	}
	return append([]any{}, rest...), true
}

// conditionsWith returns the Node's conditions with ours.
func conditionsWith(node *unstructured.Unstructured, problems []string, now time.Time) []any {
	at := now.UTC().Format(time.RFC3339)
	ours := map[string]any{
		"type": Condition, "status": "True", "reason": "AllRailsUp", "message": "bridge, uplink and BGP session of each rail are up",
		"lastHeartbeatTime": at, "lastTransitionTime": at,
	}
	if len(problems) > 0 {
		message := strings.Join(problems, "; ")
		ours["status"], ours["reason"], ours["message"] = "False", "RailDown", message[:min(len(message), longestMessage)]
	}
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for i, condition := range conditions {
		fields, _ := condition.(map[string]any)
		if fields["type"] != Condition {
			continue
		}
		if fields["status"] == ours["status"] && fields["lastTransitionTime"] != nil {
			ours["lastTransitionTime"] = fields["lastTransitionTime"]
		}
		conditions[i] = ours
		return conditions
	}
	return append(conditions, ours)
}
