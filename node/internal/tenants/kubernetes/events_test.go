package kubernetes

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"railwright/node/internal/attachment"
)

// transport answers requests in this process.
type transport func(*http.Request) (status int, body string)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	status, body := t(request)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: request}, nil
}

// TestEventsAreCreatedOnceWithoutBlocking also checks that all nodes use the same name.
func TestEventsAreCreatedOnceWithoutBlocking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var created []*unstructured.Unstructured
		open := func(node string) *Store {
			store, err := New(&rest.Config{Host: "http://server", Transport: transport(func(request *http.Request) (int, string) {
				event := &unstructured.Unstructured{}
				if err := json.NewDecoder(request.Body).Decode(event); err != nil || request.Method != "POST" ||
					request.URL.Path != "/api/v1/namespaces/"+event.GetNamespace()+"/events" {
					t.Errorf("%s %s: %v", request.Method, request.URL, err)
				}
				created = append(created, event)
				return 409, failure(409, "AlreadyExists")
			})}, node, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
		store, other := open("node-1"), open("node-2")
		pod := attachment.Pod{Namespace: "team-a", Name: "trainer-0", UID: "u-1"}
		for range 3 {
			store.NotifyPod(pod, "AddressHeld", strings.Repeat("x", 2000))
			other.NotifyPod(pod, "AddressHeld", strings.Repeat("x", 2000))
		}
		store.NotifyPod(attachment.Pod{}, "AddressHeld", "without a pod")
		if len(store.events) != 1 {
			t.Fatalf("%d events", len(store.events))
		}
		same := <-other.events
		for n := range 2 * maxQueued {
			pod.UID = string(rune('a' + n))
			store.NotifyPod(pod, "AddressHeld", "again")
		}
		if len(store.events) != maxQueued {
			t.Errorf("%d events queued", len(store.events))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go store.Run(ctx)
		synctest.Wait()
		if len(created) != maxQueued {
			t.Fatalf("%d events created", len(created))
		}
		text := func(fields ...string) string {
			found, _, _ := unstructured.NestedString(created[0].Object, fields...)
			return found
		}
		if created[0].GetNamespace() != "team-a" || created[0].GetName() != same.GetName() ||
			text("involvedObject", "uid") != "u-1" || text("involvedObject", "kind") != "Pod" || text("type") != "Warning" ||
			text("source", "host") != "node-1" || len(text("message")) != longestMessage {
			t.Errorf("%v", created[0])
		}
		pod.UID = "a"
		store.NotifyPod(pod, "AddressHeld", "again")
		synctest.Wait()
		if len(created) != maxQueued {
			t.Errorf("%d events created", len(created))
		}
		time.Sleep(repeatAfter)
		synctest.Wait()
		store.NotifyPod(pod, "AddressHeld", "again")
		synctest.Wait()
		if last := created[len(created)-1]; len(created) != maxQueued+1 || last.GetName() != created[1].GetName() {
			t.Errorf("after an hour: %d events, the last %s", len(created), last.GetName())
		}
	})
}
