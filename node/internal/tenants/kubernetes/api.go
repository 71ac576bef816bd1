package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"railwright/node/internal/release"
	"railwright/node/internal/tenants"
)

// api calls the API server. It keeps specs as they are in JSON, and has no cache: reads are linearizable, because no
// request names an older version than the latest.
type api struct{ client *rest.RESTClient }

// place is where objects are in the API server.
type place struct {
	// custom means that the resource is one of deploy/crds.
	custom                    bool
	namespace, resource, name string
}

// item is an object of the API server. Other parts are not read.
type item struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
}

type metadata struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

const (
	pageSize = 500
	// maxLists limits the attempts at a list that the API server forgets before its last page was read.
	maxLists = 3
	// Range of pauses between retries of a watch that this package keeps up.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
)

// Types of events.
const (
	bookmark = "BOOKMARK"
	deleted  = "DELETED"
	failed   = "ERROR"
)

func newAPI(config *rest.Config) (api, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "railwrightd/" + release.Version
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for errors
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	return api{client}, err
}

func (a api) request(verb string, at place) *rest.Request {
	prefix := "/api/v1"
	if at.custom {
		prefix = "/apis/" + group + "/" + version
	}
	request := a.client.Verb(verb).AbsPath(prefix).SetHeader("Accept", "application/json").Resource(at.resource)
	if at.namespace != "" {
		request = request.Namespace(at.namespace)
	}
	if at.name != "" {
		request = request.Name(at.name) // refuses what is no name
	}
	return request
}

// do sends a request, with a body unless that is nil, and decodes the answer.
func do(ctx context.Context, request *rest.Request, mediaType string, body, into any) error {
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request = request.Body(content).SetHeader("Content-Type", mediaType)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	content, err := result.Raw()
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (a api) get(ctx context.Context, at place, into any) error {
	return do(ctx, a.request("GET", at), "", nil, into)
}

func (a api) create(ctx context.Context, at place, object any) (written item, err error) {
	err = do(ctx, a.request("POST", at), "application/json", object, &written)
	return written, err
}

func (a api) patch(ctx context.Context, at place, kind types.PatchType, change any) (written item, err error) {
	err = do(ctx, a.request("PATCH", at), string(kind), change, &written)
	return written, err
}

func (a api) remove(ctx context.Context, at place, preconditions metav1.Preconditions) error {
	return do(ctx, a.request("DELETE", at), "application/json", metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &preconditions,
	}, nil)
}

// list calls each with all objects and returns the version at which there were exactly these. It calls reset first, and again if
// it has to begin anew.
func (a api) list(ctx context.Context, at place, reset func(), each func(item) error) (version uint64, err error) {
	for range maxLists {
		reset()
		version, err = a.listOnce(ctx, at, each)
		if !isExpired(err) {
			break
		}
	}
	return version, err
}

func (a api) listOnce(ctx context.Context, at place, each func(item) error) (version uint64, err error) {
	for next := ""; ; {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []item `json:"items"`
		}
		request := a.request("GET", at).Param("limit", strconv.Itoa(pageSize))
		if next != "" {
			request = request.Param("continue", next)
		}
		if err := do(ctx, request, "", nil, &page); err != nil {
			return 0, err
		}
		if version, err = parseVersion(page.Metadata.ResourceVersion); err != nil {
			return 0, err
		}
		for _, got := range page.Items {
			if err := each(got); err != nil {
				return 0, err
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return version, nil
		}
	}
}

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// watch calls heard for every event after a version until it returns an error, the connection ends or ctx does.
func (a api) watch(ctx context.Context, at place, version uint64, heard func(change string, got item) error) error {
	stream, err := a.request("GET", at).Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersion", strconv.FormatUint(version, 10)).Stream(ctx)
	if isExpired(err) {
		return tenants.ErrExpired
	}
	if err != nil {
		return err
	}
	defer stream.Close()
	decoder := json.NewDecoder(stream)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := decoder.Decode(&event); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return errors.New("API server ended the watch")
		case err != nil:
			return err
		}
		if event.Type == failed {
			var status metav1.Status
			if err := json.Unmarshal(event.Object, &status); err != nil {
				return err
			}
			if err := error(&apierrors.StatusError{ErrStatus: status}); !isExpired(err) {
				return fmt.Errorf("watch: %w", err)
			}
			return tenants.ErrExpired
		}
		var got item
		if err := json.Unmarshal(event.Object, &got); err != nil {
			return err
		}
		if err := heard(event.Type, got); err != nil {
			return err
		}
	}
}

// follow keeps changed informed of all objects, by list and watch, until ctx ends. lost gets the reasons why they cannot be
// listed.
func (a api) follow(ctx context.Context, at place, changed func(map[string]item), lost func(error)) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		var all map[string]item
		version, err := a.list(ctx, at, func() { all = map[string]item{} }, func(got item) error {
			all[got.Metadata.Name] = got
			return nil
		})
		switch {
		case err == nil:
			retry = firstRetry
			changed(all)
			_ = a.watch(ctx, at, version, func(change string, got item) error {
				switch change {
				case bookmark:
					return nil
				case deleted:
					delete(all, got.Metadata.Name)
				default:
					all[got.Metadata.Name] = got
				}
				changed(all)
				return nil
			})
		case ctx.Err() == nil:
			lost(fmt.Errorf("%s: %w", at.resource, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}
