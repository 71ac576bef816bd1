package nodehealth

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"railwright/node/testlab"
)

// cluster serves the Node gpu-1, which has a taint and a condition of others. Each patch must name its resource version.
type cluster struct {
	mutex   sync.Mutex
	version int
	failing bool
	parts   map[string]any
}

func newReporter(t *testing.T) (*cluster, *Reporter) {
	t.Helper()
	served := &cluster{parts: map[string]any{
		"spec":   map[string]any{"taints": []any{map[string]any{"key": "other", "effect": "NoExecute"}}, "podCIDR": "10.0.0.0/24"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return served, New(client, "gpu-1", slog.New(slog.DiscardHandler))
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if request.Method == http.MethodPatch {
		var patch map[string]map[string]any
		if json.NewDecoder(request.Body).Decode(&patch) != nil || c.failing ||
			patch["metadata"]["resourceVersion"] != strconv.Itoa(c.version) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		part := "spec"
		if strings.HasSuffix(request.URL.Path, "/status") {
			part = "status"
		}
		maps.Copy(c.parts[part].(map[string]any), patch[part])
		c.version++
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "gpu-1", "resourceVersion": strconv.Itoa(c.version)},
		"spec": c.parts["spec"], "status": c.parts["status"],
	})
}

func (c *cluster) fail(failing bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.failing = failing
}

// told is what a Node says.
type told struct {
	taints             []string
	status, message    string
	since              string
	readyIsStillListed bool
}

func look(t *testing.T, reporter *Reporter) told {
	t.Helper()
	node, err := reporter.nodes.Get(t.Context(), "gpu-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var seen told
	taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	for _, taint := range taints {
		fields := taint.(map[string]any)
		seen.taints = append(seen.taints, fields["key"].(string)+":"+fields["effect"].(string))
	}
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, condition := range conditions {
		switch fields := condition.(map[string]any); fields["type"] {
		case Condition:
			seen.status, seen.message, seen.since = fields["status"].(string), fields["message"].(string), fields["lastTransitionTime"].(string)
		case "Ready":
			seen.readyIsStillListed = true
		}
	}
	return seen
}

func TestARailThatIsDownTaintsTheNodeUntilItReturns(t *testing.T) {
	t.Parallel()
	served, reporter := newReporter(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reporter.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	const others, ours = "other:NoExecute", Taint + ":NoSchedule"
	for _, step := range []struct {
		problems []string
		status   string
		taints   []string
	}{
		{nil, "True", []string{others}},
		{[]string{"rail rail0: uplink pf1 has no carrier"}, "False", []string{others, ours}},
		{[]string{"rail rail0: uplink pf1 has no carrier", "rail rail1: BGP"}, "False", []string{others, ours}},
		{nil, "True", []string{others}},
	} {
		served.fail(true)
		reporter.Report(step.problems)
		time.AfterFunc(50*time.Millisecond, func() { served.fail(false) })
		var seen told
		testlab.Eventually(t, "the Node says so", func() bool {
			seen = look(t, reporter)
			return seen.status == step.status && slices.Equal(seen.taints, step.taints) && seen.readyIsStillListed &&
				(len(step.problems) == 0 || seen.message == strings.Join(step.problems, "; "))
		})
	}
}

func TestTheTimeOfTransitionIsKept(t *testing.T) {
	t.Parallel()
	_, reporter := newReporter(t)
	node, err := reporter.nodes.Get(t.Context(), "gpu-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_000_000, 0)
	write := func(problems ...string) string {
		conditions := conditionsWith(node, problems, at)
		if err := unstructured.SetNestedSlice(node.Object, conditions, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Minute)
		return conditions[len(conditions)-1].(map[string]any)["lastTransitionTime"].(string)
	}
	first := write()
	if write() != first || write("down") == first || write() == first {
		t.Error("the time of transition must change with the status alone")
	}
}
