// Package kubernetes implements the tenant directory's store in the API server. deploy/crds defines its objects, and
// deploy/access.yaml who may write them.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	api      api
	pods     []netip.Prefix
	recorder *eventRecorder
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
	return &Store{api: api, pods: pods, recorder: newEventRecorder(api, node, log)}, nil
}

// Run sends the events about pods and operators' objects until ctx ends.
func (s *Store) Run(ctx context.Context) { s.recorder.run(ctx) }

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
	found := place{resource: kinds[kind].resource, name: name, custom: true}
	if space != "" {
		found.namespace = SpaceName(space)
	}
	return found
}

// fromAPI returns an object of the API server.
func fromAPI(kind tenants.Kind, space string, got item) (tenants.Object, error) {
	number, err := parseVersion(got.Metadata.ResourceVersion)
	return tenants.Object{
		Kind: kind, Space: space, Name: got.Metadata.Name, UID: got.Metadata.UID, Version: number,
		Off: got.Metadata.Annotations[OffAnnotation], Spec: got.Spec,
	}, err
}

func parseVersion(text string) (uint64, error) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion must be a number, got %.80q", text)
	}
	return number, nil
}

// Create implements tenants.Store.
func (s *Store) Create(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	where := at(object.Kind, object.Space, "")
	sent := map[string]any{
		"apiVersion": group + "/" + version, "kind": kinds[object.Kind].kind,
		"metadata": map[string]any{"name": object.Name}, "spec": object.Spec,
	}
	written, err := s.api.create(ctx, where, sent)
	if apierrors.IsNotFound(err) && object.Space != "" {
		if err := s.makeSpace(ctx, object.Space); err != nil {
			return object, err
		}
		written, err = s.api.create(ctx, where, sent)
	}
	if apierrors.IsAlreadyExists(err) {
		return object, tenants.ErrExists
	}
	if err != nil {
		return object, err
	}
	return fromAPI(object.Kind, object.Space, written)
}

// makeSpace creates the namespace for a tenant's members. If the tenant is a namespace, Kubernetes deletes it with that.
func (s *Store) makeSpace(ctx context.Context, tenant string) error {
	metadata := map[string]any{
		"name": SpaceName(tenant), "annotations": map[string]any{tenantAnnotation: tenant},
		"labels": map[string]any{"app.kubernetes.io/managed-by": "railwrightd"},
	}
	name, single := tenants.SingleNamespace(tenant)
	if _, uid, has := strings.Cut(tenant, "@"); single && has {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}}
	}
	_, err := s.api.create(ctx, place{resource: "namespaces"}, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Update implements tenants.Store. It is one request that keeps labels and annotations.
func (s *Store) Update(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	written, err := s.api.patch(ctx, at(object.Kind, object.Space, object.Name), types.JSONPatchType, []any{
		replace("/metadata/uid", object.UID),
		replace("/metadata/resourceVersion", strconv.FormatUint(object.Version, 10)),
		replace("/spec", object.Spec),
	})
	switch {
	case apierrors.IsNotFound(err):
		return object, tenants.ErrGone
	case apierrors.IsConflict(err), isOtherUID(err):
		return object, tenants.ErrConflict
	case err != nil:
		return object, err
	}
	return fromAPI(object.Kind, object.Space, written)
}

func replace(path string, value any) map[string]any {
	return map[string]any{"op": "replace", "path": path, "value": value}
}

// isOtherUID reports whether a patch was refused because the object has another UID. Its version is then the same: it was
// created after the store was restored from a backup.
func isOtherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}

// Delete implements tenants.Store.
func (s *Store) Delete(ctx context.Context, object tenants.Object) error {
	uid, number := types.UID(object.UID), strconv.FormatUint(object.Version, 10)
	err := s.api.remove(ctx, at(object.Kind, object.Space, object.Name), metav1.Preconditions{UID: &uid, ResourceVersion: &number})
	switch {
	case apierrors.IsNotFound(err):
		return tenants.ErrGone
	case apierrors.IsConflict(err):
		return tenants.ErrConflict
	}
	return err
}

// Get implements tenants.Store.
func (s *Store) Get(ctx context.Context, kind tenants.Kind, space, name string) (tenants.Object, error) {
	var got item
	err := s.api.get(ctx, at(kind, space, name), &got)
	if apierrors.IsNotFound(err) {
		return tenants.Object{}, tenants.ErrGone
	}
	if err != nil {
		return tenants.Object{}, err
	}
	return fromAPI(kind, space, got)
}

// List implements tenants.Store.
func (s *Store) List(ctx context.Context, kind tenants.Kind, space string) (list tenants.List, err error) {
	list.Version, err = s.api.list(ctx, at(kind, space, ""), func() { list.Objects = nil }, func(got item) error {
		object, err := fromAPI(kind, space, got)
		list.Objects = append(list.Objects, object)
		return err
	})
	return list, err
}

// Watch implements tenants.Store.
func (s *Store) Watch(ctx context.Context, kind tenants.Kind, space string, version uint64, heard func(tenants.Event)) error {
	return s.api.watch(ctx, at(kind, space, ""), version, func(change string, got item) error {
		object, err := fromAPI(kind, space, got)
		if err != nil {
			return err
		}
		if change == bookmark {
			object = tenants.Object{Kind: kind, Space: space, Version: object.Version}
		}
		heard(tenants.Event{Object: object, Deleted: change == deleted})
		return nil
	})
}

// Namespace implements tenants.Store.
func (s *Store) Namespace(ctx context.Context, name string) (tenants.Namespace, error) {
	var got item
	err := s.api.get(ctx, place{resource: "namespaces", name: name}, &got)
	if apierrors.IsNotFound(err) {
		return tenants.Namespace{}, tenants.ErrGone
	}
	return tenants.Namespace{Name: name, UID: got.Metadata.UID, Made: got.Metadata.CreationTimestamp}, err
}

// Machine implements tenants.Store.
func (s *Store) Machine(ctx context.Context, node string) (tenants.Machine, error) {
	var got struct {
		Metadata metadata
		Status   struct {
			NodeInfo struct {
				MachineID string `json:"machineID"`
			} `json:"nodeInfo"`
		}
	}
	err := s.api.get(ctx, place{resource: "nodes", name: node}, &got)
	if apierrors.IsNotFound(err) {
		return tenants.Machine{}, fmt.Errorf("no Node %s in the API server; set `node` to this node's name there", node)
	}
	return tenants.Machine{NodeUID: got.Metadata.UID, ID: got.Status.NodeInfo.MachineID}, err
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
