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
	store := &Store{recorder: newEventRecorder(api{}, "node-1", nil)}
	other := &Store{recorder: newEventRecorder(api{}, "node-2", nil)}
	pod := attachment.Pod{Namespace: "team-a", Name: "trainer-0", UID: "u-1"}
	for range 3 {
		store.NotifyPod(pod, "AddressHeld", strings.Repeat("x", 2000))
		other.NotifyPod(pod, "AddressHeld", strings.Repeat("x", 2000))
	}
	store.NotifyPod(attachment.Pod{}, "AddressHeld", "without a pod")
	if len(store.recorder.queue) != 1 {
		t.Fatalf("%d events", len(store.recorder.queue))
	}
	event, same := <-store.recorder.queue, <-other.recorder.queue
	if event.Metadata["namespace"] != "team-a" || event.Metadata["name"] != same.Metadata["name"] ||
		event.InvolvedObject.UID != "u-1" || event.InvolvedObject.Kind != "Pod" || event.Type != "Warning" ||
		len(event.Message) != longestMessage {
		t.Errorf("%+v", event)
	}
	for n := range 2 * maxQueued {
		pod.UID = string(rune('a' + n))
		store.NotifyPod(pod, "AddressHeld", "again")
	}
	if len(store.recorder.queue) != maxQueued {
		t.Errorf("%d events queued", len(store.recorder.queue))
	}
	for key := range store.recorder.reported {
		store.recorder.reported[key] = time.Now().Add(-repeatAfter)
	}
	<-store.recorder.queue
	pod.UID = "a"
	store.NotifyPod(pod, "AddressHeld", "again")
	if len(store.recorder.queue) != maxQueued || len(store.recorder.reported) != 1 {
		t.Errorf("after an hour: %d events, %d remembered", len(store.recorder.queue), len(store.recorder.reported))
	}
}
