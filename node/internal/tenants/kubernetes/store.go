// Package kubernetes implements the tenant directory's store in the API server. deploy/crds defines its objects, and
// deploy/access.yaml who may write them.
package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"railwright/node/internal/tenants"
)

const (
	group   = "network.railwright.dev"
	version = "v1alpha1"
	// OffAnnotation of a RailNode has Object.Off. An AddressClaim that has it can be deleted by administrators.
	OffAnnotation = group + "/off"
	// tenantAnnotation names the tenant whose members a namespace has.
	tenantAnnotation = group + "/tenant"
	// spacePrefix begins the names of namespaces for members. deploy/access.yaml keeps it for railwrightd.
	spacePrefix = "railwright-tenant-"
)

// Store is a tenants.Store in the API server.
type Store struct {
	api    api
	node   string
	pods   []netip.Prefix
	log    *slog.Logger
	events chan *unstructured.Unstructured
	// reported has the keys of the events that were queued lately.
	reported sync.Map
}

var _ tenants.Store = (*Store)(nil)

// Config returns the configuration of a kubeconfig, or of the pod's service account if the path is empty.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure access to the API server: %w", err)
	}
	return config, nil
}

// New returns a store for a node with the pods' prefixes. It does not contact the API server yet.
func New(config *rest.Config, node string, pods []netip.Prefix, log *slog.Logger) (*Store, error) {
	api, err := newAPI(config)
	if err != nil {
		return nil, err
	}
	if log != nil {
		klog.SetSlogLogger(log.With("from", "client-go"))
	}
	return &Store{
		api: api, node: node, pods: pods, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		events: make(chan *unstructured.Unstructured, maxQueued),
	}, nil
}

// SpaceName returns the namespace of a tenant's members. The tenant's name has the UID of its namespace, so a later
// namespace of the same name has other members.
func SpaceName(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return spacePrefix + hex.EncodeToString(sum[:16])
}

// kinds maps the kinds of objects to their names and resources in the API server.
var kinds = map[tenants.Kind]struct{ kind, resource string }{
	tenants.KindClaim:   {"AddressClaim", "addressclaims"},
	tenants.KindMembers: {"TenantMembers", "tenantmembers"},
	tenants.KindNode:    {"RailNode", "railnodes"},
	tenants.KindEpoch:   {"RailEpoch", "railepochs"},
}

func at(kind tenants.Kind, space, name string) place {
	found := place{prefix: custom, resource: kinds[kind].resource, name: name}
	if space != "" {
		found.namespace = SpaceName(space)
	}
	return found
}

// fromAPI returns an object of the API server.
func fromAPI(kind tenants.Kind, space string, got item) tenants.Object {
	return tenants.Object{
		Kind: kind, Space: space, Name: got.Metadata.Name, UID: got.Metadata.UID, Version: uint64(got.Metadata.ResourceVersion),
		Off: got.Metadata.Annotations[OffAnnotation], Spec: got.Spec,
	}
}

// Create implements tenants.Store.
func (s *Store) Create(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	sent := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + version, "kind": kinds[object.Kind].kind,
		"metadata": map[string]any{"name": object.Name}, "spec": object.Spec,
	}}
	var written item
	create := func() error {
		return do(ctx, s.api.request("POST", at(object.Kind, object.Space, "")).Body(sent), &written)
	}
	err := create()
	if apierrors.IsNotFound(err) && object.Space != "" {
		if err = s.makeSpace(ctx, object.Space); err == nil {
			err = create()
		}
	}
	if apierrors.IsAlreadyExists(err) {
		err = tenants.ErrExists
	}
	return fromAPI(object.Kind, object.Space, written), err
}

// makeSpace creates the namespace for a tenant's members. If the tenant is a namespace, Kubernetes deletes it with that.
func (s *Store) makeSpace(ctx context.Context, tenant string) error {
	space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	space.SetName(SpaceName(tenant))
	space.SetAnnotations(map[string]string{tenantAnnotation: tenant})
	space.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "railwrightd"})
	name, single := tenants.SingleNamespace(tenant)
	if _, uid, has := strings.Cut(tenant, "@"); single && has {
		space.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: name, UID: types.UID(uid)}})
	}
	err := do(ctx, s.api.request("POST", place{prefix: core, resource: "namespaces"}).Body(space), nil)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Update implements tenants.Store. It is one request that keeps labels and annotations.
func (s *Store) Update(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	replace := func(path string, value any) map[string]any {
		return map[string]any{"op": "replace", "path": path, "value": value}
	}
	written, err := s.api.patch(ctx, at(object.Kind, object.Space, object.Name), types.JSONPatchType, []any{
		replace("/metadata/uid", object.UID),
		replace("/metadata/resourceVersion", strconv.FormatUint(object.Version, 10)),
		replace("/spec", object.Spec),
	})
	return fromAPI(object.Kind, object.Space, written), known(err)
}

// Delete implements tenants.Store.
func (s *Store) Delete(ctx context.Context, object tenants.Object) error {
	options := metav1.NewPreconditionDeleteOptions(object.UID)
	options.Preconditions.ResourceVersion = new(strconv.FormatUint(object.Version, 10))
	return known(do(ctx, s.api.request("DELETE", at(object.Kind, object.Space, object.Name)).Body(options), nil))
}

// Get implements tenants.Store.
func (s *Store) Get(ctx context.Context, kind tenants.Kind, space, name string) (tenants.Object, error) {
	var got item
	err := do(ctx, s.api.request("GET", at(kind, space, name)), &got)
	return fromAPI(kind, space, got), known(err)
}

// List implements tenants.Store.
func (s *Store) List(ctx context.Context, kind tenants.Kind, space string) (list tenants.List, err error) {
	items, version, err := s.api.list(ctx, at(kind, space, ""))
	list.Version, list.Objects = uint64(version), make([]tenants.Object, len(items))
	for i, got := range items {
		list.Objects[i] = fromAPI(kind, space, got)
	}
	return list, err
}

// Watch implements tenants.Store.
func (s *Store) Watch(ctx context.Context, kind tenants.Kind, space string, version uint64, heard func(tenants.Event)) error {
	return s.api.watch(ctx, at(kind, space, ""), number(version), func(change watch.EventType, got item) {
		object := fromAPI(kind, space, got)
		if change == watch.Bookmark {
			object = tenants.Object{Kind: kind, Space: space, Version: object.Version}
		}
		heard(tenants.Event{Object: object, Deleted: change == watch.Deleted})
	})
}

// Namespace implements tenants.Store.
func (s *Store) Namespace(ctx context.Context, name string) (tenants.Namespace, error) {
	var got item
	err := do(ctx, s.api.request("GET", place{prefix: core, resource: "namespaces", name: name}), &got)
	return tenants.Namespace{Name: name, UID: got.Metadata.UID, Made: got.Metadata.CreationTimestamp}, known(err)
}

// Machine implements tenants.Store.
func (s *Store) Machine(ctx context.Context, node string) (tenants.Machine, error) {
	var got unstructured.Unstructured
	err := do(ctx, s.api.request("GET", place{prefix: core, resource: "nodes", name: node}), &got)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("no Node %s in the API server; set `node` to this node's name there", node)
	}
	id, _, _ := unstructured.NestedString(got.Object, "status", "nodeInfo", "machineID")
	return tenants.Machine{NodeUID: string(got.GetUID()), ID: id}, err
}

// decode parses a spec. It ignores unknown fields.
func decode(spec json.RawMessage, into any) error {
	if len(spec) == 0 {
		return nil
	}
	if err := json.Unmarshal(spec, into); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	return nil
}
