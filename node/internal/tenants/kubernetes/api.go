package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"railwright/node/internal/pause"
	"railwright/node/internal/release"
	"railwright/node/internal/tenants"
)

// api calls the API server. It has no cache: reads are linearizable, because no request names an older version than the
// latest. It decodes objects itself and keeps specs as they are in JSON: client-go's typed watches take three times the CPU
// time, its dynamic client four times, and that rounds large numbers in the fields of later versions.
type api struct{ client *rest.RESTClient }

// place is where objects are in the API server.
type place struct{ prefix, namespace, resource, name string }

// Prefixes of places: the API server's own resources, and those of deploy/crds.
const (
	core   = "/api/v1"
	custom = "/apis/" + group + "/" + version
)

// item is an object of the API server. Other parts are not read.
type item struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		ResourceVersion   number            `json:"resourceVersion"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// number is a version, which the API server writes as a text.
type number uint64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *number) UnmarshalText(text []byte) error {
	read, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion must be a number, got %.80q", text)
	}
	*n = number(read)
	return nil
}

const (
	// Range of pauses between retries of a watch that this package keeps up.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// maxChanges limits the changes that wait while earlier ones are reported. They are then reported together.
	maxChanges = 64
)

func newAPI(config *rest.Config) (api, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "railwrightd/" + release.Version
	config.AcceptContentTypes = runtime.ContentTypeJSON
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for errors and options
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	return api{client}, err
}

func (a api) request(verb string, at place) *rest.Request {
	request := a.client.Verb(verb).AbsPath(at.prefix).NamespaceIfScoped(at.namespace, at.namespace != "").Resource(at.resource)
	if at.name == "" {
		return request
	}
	return request.Name(at.name) // refuses what is no name
}

// do sends a request, and decodes the answer unless into is nil.
func do(ctx context.Context, request *rest.Request, into any) error {
	result := request.Do(ctx)
	content, _ := result.Raw()
	if err := result.Error(); err != nil || into == nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (a api) patch(ctx context.Context, at place, kind types.PatchType, change any) (written item, err error) {
	body, err := json.Marshal(change)
	if err == nil {
		err = do(ctx, a.request("PATCH", at).SetHeader("Content-Type", string(kind)).Body(body), &written)
	}
	return written, err
}

// known returns the error of a Store that an error of the API server is, if any.
func known(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", tenants.ErrGone, err)
	case apierrors.IsConflict(err), isOtherUID(err):
		return fmt.Errorf("%w: %w", tenants.ErrConflict, err)
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return fmt.Errorf("%w: %w", tenants.ErrExpired, err)
	}
	return err
}

// isOtherUID reports whether a patch was refused because the object has another UID. Its version is then the same: it was
// created after the store was restored from a backup.
func isOtherUID(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}

// list returns all objects of a place and the version at which there were exactly these.
func (a api) list(ctx context.Context, at place) (items []item, version number, err error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Continue == "" {
			items = nil // it begins, or begins anew because the API server has forgotten the later pages
		}
		var page struct {
			metav1.ListMeta `json:"metadata"`
			Items           []item `json:"items"`
		}
		err := do(ctx, a.request("GET", at).VersionedParams(&options, metav1.ParameterCodec), &page)
		if err == nil {
			err = version.UnmarshalText([]byte(page.ResourceVersion))
		}
		items = append(items, page.Items...)
		return &metav1.List{ListMeta: page.ListMeta}, err
	})
	_, _, err = pages.List(ctx, metav1.ListOptions{})
	return items, version, err
}

// watch calls heard for every event after a version until the connection ends or ctx does.
func (a api) watch(ctx context.Context, at place, version number, heard func(change watch.EventType, got item)) error {
	stream, err := a.request("GET", at).Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersion", strconv.FormatUint(uint64(version), 10)).Stream(ctx)
	if err != nil {
		return known(err)
	}
	defer stream.Close()
	for decoder := json.NewDecoder(stream); ; {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object struct {
				item
				// An error is a Status.
				Code    int32               `json:"code"`
				Reason  metav1.StatusReason `json:"reason"`
				Message string              `json:"message"`
			} `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("watch: %w", err))
		}
		got := event.Object
		if event.Type == watch.Error {
			return known(&apierrors.StatusError{ErrStatus: metav1.Status{Code: got.Code, Reason: got.Reason, Message: got.Message}})
		}
		heard(event.Type, got.item)
	}
}

// listed is the type of an event that begins with all objects.
const listed watch.EventType = "LISTED"

// follow calls heard with all objects of a place and then with each that changes, until ctx ends. lost gets the reasons why
// they cannot be listed. It lists again after every break, which an informer of client-go does not: a restored API server
// sends nothing before it has reached the last version of the earlier one.
func (a api) follow(ctx context.Context, at place, heard func(change watch.EventType, items ...item), lost func(error)) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		items, version, err := a.list(ctx, at)
		switch {
		case err == nil:
			retry = firstRetry
			heard(listed, items...)
			_ = a.watch(ctx, at, version, func(change watch.EventType, got item) {
				if change != watch.Bookmark {
					heard(change, got)
				}
			})
		case ctx.Err() == nil:
			lost(fmt.Errorf("%s: %w", at.resource, err))
		}
		pause.For(ctx, retry)
	}
}

// mirror follows two places until ctx ends. It calls changed with their objects by name after changes, and at least every so
// often, but not before both are listed. The maps change after the call.
func (a api) mirror(
	ctx context.Context, places [2]place, every time.Duration, changed func(first, second map[string]item), lost func(error),
) {
	var all [2]map[string]item
	changes := make(chan func(), maxChanges)
	var feeds sync.WaitGroup
	defer feeds.Wait()
	for i, at := range places {
		take := func(change watch.EventType, items ...item) {
			if change == listed {
				all[i] = map[string]item{}
			}
			for _, got := range items {
				all[i][got.Metadata.Name] = got
				if change == watch.Deleted {
					delete(all[i], got.Metadata.Name)
				}
			}
		}
		feeds.Go(func() {
			a.follow(ctx, at, func(change watch.EventType, items ...item) {
				select {
				case <-ctx.Done():
				case changes <- func() { take(change, items...) }:
				}
			}, lost)
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-changes:
			change()
		case <-time.After(every):
		}
		if len(changes) == 0 && all[0] != nil && all[1] != nil && ctx.Err() == nil {
			changed(all[0], all[1])
		}
	}
}
