package kubernetes

import (
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
)

// TestEventsAreCreatedOnceWithoutBlocking also checks that all nodes use the same name.
func TestEventsAreCreatedOnceWithoutBlocking(t *testing.T) {
	t.Parallel()
	store := &Store{teller: newEventRecorder(nil, "node-1", nil)}
	other := &Store{teller: newEventRecorder(nil, "node-2", nil)}
	pod := attachment.Pod{Namespace: "team-a", Name: "trainer-0", UID: "u-1"}
	for range 3 {
		store.NotifyPod(pod, "NodesUnconfirmed", strings.Repeat("x", 2000))
		other.NotifyPod(pod, "NodesUnconfirmed", strings.Repeat("x", 2000))
	}
	store.NotifyPod(attachment.Pod{}, "NodesUnconfirmed", "without a pod")
	if len(store.teller.queue) != 1 {
		t.Fatalf("%d events", len(store.teller.queue))
	}
	event, same := <-store.teller.queue, <-other.teller.queue
	about, _ := event.Object["involvedObject"].(map[string]any)
	if event.GetNamespace() != "team-a" || event.GetName() != same.GetName() || about["uid"] != "u-1" || about["kind"] != "Pod" ||
		event.Object["type"] != "Warning" || len(event.Object["message"].(string)) != longestMessage {
		t.Errorf("%v", event.Object)
	}
	for n := range 2 * maxQueued {
		pod.UID = string(rune('a' + n))
		store.NotifyPod(pod, "NodesUnconfirmed", "again")
	}
	if len(store.teller.queue) != maxQueued {
		t.Errorf("%d events queued", len(store.teller.queue))
	}
	for key := range store.teller.reported {
		store.teller.reported[key] = time.Now().Add(-repeatAfter)
	}
	<-store.teller.queue
	pod.UID = "a"
	store.NotifyPod(pod, "NodesUnconfirmed", "again")
	if len(store.teller.queue) != maxQueued || len(store.teller.reported) != 1 {
		t.Errorf("after an hour: %d events, %d remembered", len(store.teller.queue), len(store.teller.reported))
	}
}
