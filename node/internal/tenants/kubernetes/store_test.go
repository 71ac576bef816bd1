package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"railwright/node/internal/tenants"
)

// request is a request that a double of the API server received.
type request struct {
	method, path, body string
	query              url.Values
}

// double is an API server that answers what a test says, and records the requests.
type double struct {
	mutex    sync.Mutex
	requests []request
	answer   func(request) (status int, body string)
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := request{r.Method, r.URL.Path, string(body), r.URL.Query()}
	d.mutex.Lock()
	d.requests = append(d.requests, got)
	d.mutex.Unlock()
	status, text := d.answer(got)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (d *double) store(t *testing.T) *Store {
	t.Helper()
	served := httptest.NewServer(d)
	t.Cleanup(served.Close)
	store, err := New(&rest.Config{Host: served.URL}, "node-1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func failure(code int, reason string) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`, reason, code)
}

const membersPath = "/apis/network.railwright.dev/v1alpha1/namespaces/"

// TestListsNameNoVersionAndWatchesTheListsOne checks the two requests on which the guarantee rests: a list that names a
// version may be answered from a cache that is older than what others have published.
func TestListsNameNoVersionAndWatchesTheListsOne(t *testing.T) {
	t.Parallel()
	const second = `{"metadata": {"name": "b", "resourceVersion": "5"}, "spec": {}}`
	pages := 0
	server := &double{}
	server.answer = func(got request) (int, string) {
		switch {
		case got.query.Get("watch") != "":
			return http.StatusOK, `{"type": "MODIFIED", "object": {"metadata": {"name": "b", "resourceVersion": "8"}, "spec": {"later":1}}}
				{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
				{"type": "DELETED", "object": {"metadata": {"name": "b", "resourceVersion": "10"}, "spec": {}}}`
		case got.query.Get("continue") == "":
			pages++
			first := `{"metadata": {"name": "a", "uid": "u", "resourceVersion": "3"}, "spec": {"addresses": [], "later": {"x": 12345678901234567890}}}`
			if !got.query.Has("limit") { // after the later pages were forgotten
				return http.StatusOK, `{"metadata": {"resourceVersion": "7"}, "items": [` + first + `, ` + second + `]}`
			}
			return http.StatusOK, `{"metadata": {"resourceVersion": "6", "continue": "more"}, "items": [` + first + `]}`
		}
		return http.StatusGone, failure(http.StatusGone, "Expired")
	}
	store := server.store(t)
	list, err := store.List(t.Context(), tenants.KindMembers, "ns:a@1")
	if err != nil || pages != 2 || list.Version != 7 || len(list.Objects) != 2 || list.Objects[0].Version != 3 || list.Objects[0].UID != "u" {
		t.Fatalf("%+v, %v after %d first pages", list, err, pages)
	}
	if spec := string(list.Objects[0].Spec); !strings.Contains(spec, "12345678901234567890") {
		t.Errorf("a later version's field was changed: %s", spec)
	}
	var heard []string
	err = store.Watch(t.Context(), tenants.KindMembers, "ns:a@1", list.Version, func(event tenants.Event) {
		heard = append(heard, fmt.Sprint(event.Object.Name, event.Object.Version, event.Deleted))
	})
	if got := strings.Join(heard, " "); got != "b8 false 9 false b10 true" || err == nil {
		t.Errorf("heard %q, %v", got, err)
	}
	for _, got := range server.requests {
		if got.path != membersPath+SpaceName("ns:a@1")+"/tenantmembers" {
			t.Errorf("asked for %s", got.path)
		}
		want := ""
		if got.query.Has("watch") {
			want = "7"
		}
		if got.query.Get("resourceVersion") != want || got.query.Has("resourceVersionMatch") {
			t.Errorf("%v names a version", got.query)
		}
	}
}

func TestUpdateKeepsWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	server := &double{answer: func(request) (int, string) {
		return http.StatusOK, `{"metadata": {"name": "a", "uid": "u", "resourceVersion": "8", "annotations": {"network.railwright.dev/off": "n"}},
			"spec": {"later": 1}}`
	}}
	written, err := server.store(t).Update(t.Context(), tenants.Object{
		Kind: tenants.KindNode, Name: "a", UID: "u", Version: 7, Spec: json.RawMessage(`{"later":1}`),
	})
	if err != nil || written.Version != 8 || written.Off != "n" {
		t.Fatalf("%+v, %v", written, err)
	}
	var changes []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal([]byte(server.requests[0].body), &changes); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(changes); server.requests[0].method != "PATCH" || len(server.requests) != 1 ||
		got != "[{replace /metadata/uid u} {replace /metadata/resourceVersion 7} {replace /spec map[later:1]}]" {
		t.Errorf("%s %s", server.requests[0].method, got)
	}
}

func TestErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	object := tenants.Object{Kind: tenants.KindClaim, Name: "10-1-0-1", UID: "u", Version: 7, Spec: json.RawMessage(`{}`)}
	otherUID := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
		"details": {"causes": [{"field": "metadata.uid"}]}}`
	for name, test := range map[string]struct {
		status int
		body   string
		do     func(*Store) error
		want   error
	}{
		"create twice": {409, failure(409, "AlreadyExists"), func(s *Store) error { _, err := s.Create(context.Background(), object); return err }, tenants.ErrExists},
		"changed":      {409, failure(409, "Conflict"), func(s *Store) error { _, err := s.Update(context.Background(), object); return err }, tenants.ErrConflict},
		"other UID":    {422, otherUID, func(s *Store) error { _, err := s.Update(context.Background(), object); return err }, tenants.ErrConflict},
		"no more":      {404, failure(404, "NotFound"), func(s *Store) error { _, err := s.Update(context.Background(), object); return err }, tenants.ErrGone},
		"delete":       {409, failure(409, "Conflict"), func(s *Store) error { return s.Delete(context.Background(), object) }, tenants.ErrConflict},
		"deleted":      {404, failure(404, "NotFound"), func(s *Store) error { return s.Delete(context.Background(), object) }, tenants.ErrGone},
		"get": {404, failure(404, "NotFound"), func(s *Store) error {
			_, err := s.Get(context.Background(), object.Kind, "", object.Name)
			return err
		}, tenants.ErrGone},
		"namespace": {404, failure(404, "NotFound"), func(s *Store) error { _, err := s.Namespace(context.Background(), "a"); return err }, tenants.ErrGone},
		"forgotten": {410, failure(410, "Expired"), func(s *Store) error {
			return s.Watch(context.Background(), object.Kind, "", 7, func(tenants.Event) {})
		}, tenants.ErrExpired},
		"forgotten later": {200, `{"type": "ERROR", "object": ` + failure(410, "Expired") + `}`, func(s *Store) error {
			return s.Watch(context.Background(), object.Kind, "", 7, func(tenants.Event) {})
		}, tenants.ErrExpired},
	} {
		server := &double{answer: func(request) (int, string) { return test.status, test.body }}
		if err := test.do(server.store(t)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, version := range []string{"", "1.5", "-1", "x"} {
		odd := &double{answer: func(request) (int, string) {
			return 200, fmt.Sprintf(`{"metadata": {"name": "a", "resourceVersion": %q}}`, version)
		}}
		if got, err := odd.store(t).Get(t.Context(), object.Kind, "", object.Name); err == nil {
			t.Errorf("version %q was read as %d", version, got.Version)
		}
		if list, err := odd.store(t).List(t.Context(), object.Kind, ""); err == nil {
			t.Errorf("version %q was listed as %d", version, list.Version)
		}
	}
	refusing := &double{answer: func(request) (int, string) { return 403, failure(403, "Forbidden") }}
	for _, known := range []error{tenants.ErrExists, tenants.ErrConflict, tenants.ErrGone} {
		if _, err := refusing.store(t).Create(t.Context(), object); err == nil || errors.Is(err, known) {
			t.Errorf("forbidden is %v", err)
		}
	}
	if _, err := refusing.store(t).Get(t.Context(), tenants.KindClaim, "", "../nodes"); err == nil {
		t.Error("a name with a slash was sent")
	}
}

// TestSpaceIsMadeOnDemand checks that the namespace for members names the namespace of its tenant by UID.
func TestSpaceIsMadeOnDemand(t *testing.T) {
	t.Parallel()
	made := false
	server := &double{}
	server.answer = func(got request) (int, string) {
		switch {
		case got.path == "/api/v1/namespaces":
			made = true
			return 201, `{"metadata": {"name": "x"}}`
		case !made:
			return 404, failure(404, "NotFound")
		}
		return 201, `{"metadata": {"name": "node-1.00000000", "uid": "u", "resourceVersion": "4"}, "spec": {}}`
	}
	written, err := server.store(t).Create(t.Context(), tenants.Object{
		Kind: tenants.KindMembers, Space: "ns:a@uid-1", Name: "node-1.00000000", Spec: json.RawMessage(`{}`),
	})
	if err != nil || written.Version != 4 || len(server.requests) != 3 {
		t.Fatalf("%+v, %v after %d requests", written, err, len(server.requests))
	}
	for _, want := range []string{SpaceName("ns:a@uid-1"), `"uid":"uid-1"`, `"name":"a"`, `"network.railwright.dev/tenant":"ns:a@uid-1"`} {
		if !strings.Contains(server.requests[1].body, want) {
			t.Errorf("namespace lacks %s: %s", want, server.requests[1].body)
		}
	}
	if SpaceName("ns:a@uid-2") == SpaceName("ns:a@uid-1") || len(SpaceName("ns:a@uid-1")) > 63 {
		t.Errorf("namespaces %s and %s", SpaceName("ns:a@uid-1"), SpaceName("ns:a@uid-2"))
	}
}

// TestPolicyIgnoresUnknownFields checks that a later version's field in a Tenant or a peering does not spoil it, and that a
// spoilt one spoils no other.
func TestPolicyIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	server := &double{}
	server.answer = func(got request) (int, string) {
		text := `{"metadata": {"name": "pair", "creationTimestamp": "2026-11-28T09:00:00Z"}, "spec": {"tenants": ["red", "ns:c"], "later": 1}},
			{"metadata": {"name": "wrong"}, "spec": {"tenants": ["red"]}}`
		if strings.HasSuffix(got.path, "/tenants") {
			text = `{"metadata": {"name": "red"}, "spec": {"namespaces": ["a"], "prefixes": ["10.1.0.0/16"], "later": {"x": 1}}},
				{"metadata": {"name": "wrong"}, "spec": {"namespaces": ["b"], "prefixes": ["ten"]}}`
		}
		if got.query.Has("watch") {
			return 410, failure(410, "Expired")
		}
		return 200, `{"metadata": {"resourceVersion": "7"}, "items": [` + text + `]}`
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var read tenants.Policy
	server.store(t).WatchPolicy(ctx, func(policy tenants.Policy) {
		read = policy
		cancel()
	}, func(err error) { t.Error(err) })
	if len(read.Tenants) != 2 || read.Tenants[0].Fault != "" || len(read.Tenants[0].Prefixes) != 1 || read.Tenants[1].Fault == "" {
		t.Errorf("%+v", read.Tenants)
	}
	if len(read.Peerings) != 2 || read.Peerings[0].Fault != "" || !read.Peerings[0].Made.Equal(made) || read.Peerings[1].Fault == "" {
		t.Errorf("%+v", read.Peerings)
	}
}

// TestPolicyIsListedAgainAfterEveryBreak plays an API server that is restored to an earlier version after it could not be
// asked for a while. A watch of that one from the last version would keep silent about what it has lost.
func TestPolicyIsListedAgainAfterEveryBreak(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var lists atomic.Int32
	heard := make(chan struct{})
	server := &double{}
	server.answer = func(got request) (int, string) {
		switch {
		case got.query.Has("watch") && got.query.Get("resourceVersion") == "5000":
			return 200, `{"type": "ADDED", "object": {"metadata": {"name": "blue", "resourceVersion": "5001"}, "spec": {}}}`
		case got.query.Has("watch"):
			return 200, ""
		case !strings.HasSuffix(got.path, "/tenants"):
			return 200, `{"metadata": {"resourceVersion": "3000"}, "items": []}`
		}
		switch lists.Add(1) {
		case 1:
			return 200, `{"metadata": {"resourceVersion": "5000"}, "items": [{"metadata": {"name": "red", "resourceVersion": "4000"}, "spec": {}}]}`
		case 2:
			select {
			case <-heard:
			case <-ctx.Done():
			}
			return 403, failure(403, "Forbidden")
		}
		return 200, `{"metadata": {"resourceVersion": "3000"}, "items": [{"metadata": {"name": "red", "resourceVersion": "2999"}, "spec": {}}]}`
	}
	tell := sync.OnceFunc(func() { close(heard) })
	both, reasons := false, make(chan error, 1)
	server.store(t).WatchPolicy(ctx, func(policy tenants.Policy) {
		switch {
		case len(policy.Tenants) == 2:
			both = true
			tell()
		case both:
			cancel()
		}
	}, func(err error) { reasons <- err })
	if !both || !errors.Is(ctx.Err(), context.Canceled) {
		t.Fatalf("heard of both: %v; then %v", both, ctx.Err())
	}
	select {
	case reason := <-reasons:
		if !strings.HasPrefix(reason.Error(), "tenants: ") {
			t.Errorf("lost for %v", reason)
		}
	default:
		t.Error("nobody was told that the policy could not be read")
	}
}

// TestSweepFreesOnlyMachinesThatAreOff plays Nodes and RailNodes in all states.
func TestSweepFreesOnlyMachinesThatAreOff(t *testing.T) {
	t.Parallel()
	machine := func(node, uid, off string) string {
		return fmt.Sprintf(`{"metadata": {"name": "%[1]s.00000001", "uid": "of-%[1]s", "resourceVersion": "5", "annotations": {%[4]q: %[3]q}},
			"spec": {"node": %[1]q, "instance": "00000001", "nodeUID": %[2]q}}`, node, uid, off, OffAnnotation)
	}
	claim := func(number int, node string) string {
		return fmt.Sprintf(`{"metadata": {"name": "10-1-0-%[1]d", "uid": "claim-%[1]d", "resourceVersion": "4"},
			"spec": {"address": "10.1.0.%[1]d", "tenant": "red", "node": %[2]q, "instance": "00000001"}}`, number, node)
	}
	node := func(name, taint string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "uid": "uid-%s"}, "spec": {"taints": [{"key": %q}]}}`, name, name, taint)
	}
	lists := map[string][]string{
		"/nodes": {node("runs", "x"), node("tainted", outOfService), node("renewed", outOfService)},
		"/railnodes": {
			machine("runs", "uid-runs", ""), machine("tainted", "uid-tainted", ""), machine("declared", "uid-declared", "uid-declared"),
			machine("mistaken", "uid-mistaken", "another"), machine("gone", "uid-gone", ""), machine("renewed", "uid-before", ""),
			machine("empty", "uid-empty", ""), `{"metadata": {"name": "unreadable", "resourceVersion": "5"}, "spec": {"node": 1}}`,
		},
		"/addressclaims": {claim(1, "runs"), claim(2, "tainted"), claim(3, "declared"), claim(4, "mistaken"), claim(5, "gone"), claim(6, "gone"), claim(7, "renewed")},
	}
	server := &double{}
	var deleted sync.Map
	server.answer = func(got request) (int, string) {
		switch {
		case got.query.Has("watch"):
			time.Sleep(10 * time.Millisecond)
			return 410, failure(410, "Expired")
		case got.method == "DELETE":
			deleted.Store(got.path[strings.LastIndex(got.path, "/")+1:], true)
			return 200, `{}`
		case got.method == "PATCH":
			return 200, `{"metadata": {"name": "x", "resourceVersion": "6"}, "spec": {}}`
		}
		for suffix, items := range lists {
			if strings.HasSuffix(got.path, suffix) {
				return 200, `{"metadata": {"resourceVersion": "7"}, "items": [` + strings.Join(items, ",") + `]}`
			}
		}
		return 404, failure(404, "NotFound")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var held map[string]int
	store := server.store(t)
	store.Sweep(ctx, store.log, func(counted map[string]int) {
		if held == nil && counted != nil {
			held = counted
			time.AfterFunc(300*time.Millisecond, cancel)
		}
	})
	if got := fmt.Sprint(held); got != "map[gone.00000001:2 mistaken.00000001:1 renewed.00000001:1]" {
		t.Errorf("held %s", got)
	}
	for name, want := range map[string]bool{
		"10-1-0-2": true, "10-1-0-3": true, "tainted.00000001": true, "declared.00000001": true, "empty.00000001": true,
		"10-1-0-1": false, "10-1-0-4": false, "10-1-0-5": false, "10-1-0-7": false, "runs.00000001": false, "gone.00000001": false,
		"mistaken.00000001": false, "renewed.00000001": false, "unreadable": false,
	} {
		if _, got := deleted.Load(name); got != want {
			t.Errorf("%s deleted: %s", name, strconv.FormatBool(got))
		}
	}
	wrote := false
	server.mutex.Lock() // a request that was given up may still be served
	defer server.mutex.Unlock()
	for _, got := range server.requests {
		if got.method == "PATCH" && strings.HasSuffix(got.path, "tainted.00000001") {
			wrote = strings.Contains(got.body, `"network.railwright.dev/off":"uid-tainted"`)
		}
	}
	if !wrote {
		t.Error("the taint was not written down")
	}
}
