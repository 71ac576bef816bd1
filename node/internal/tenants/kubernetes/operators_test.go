//go:build k8s

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// peeringEnds replaces the namespace of a peering by a new one with the same name, which the peering must not open.
func peeringEnds(t *testing.T, s *server, d, other *daemon) {
	before := d.tenant("c")
	if peers := d.open("red"); !slices.Equal(peers, []string{before}) {
		t.Fatalf("red is open to %v", peers)
	}
	s.recreateNamespace("c")
	after := other.tenant("c")
	if after == before {
		t.Fatalf("the new namespace is still %s", before)
	}
	must(t, other.claim(20*time.Second, after, "10.3.0.9"))
	if peers := other.open(after); len(peers) > 0 {
		t.Errorf("the new namespace is open to %v", peers)
	}
	must(t, d.claim(20*time.Second, "red", "10.1.0.9"))
	if d.sees("10.3.0.9") != "" || other.sees("10.1.0.9") != "" {
		t.Errorf("the peering opened a younger namespace: %q, %q", d.sees("10.3.0.9"), other.sees("10.1.0.9"))
	}
	must(t, s.tenant("other", `{namespaces: [a]}`))
	s.hasEvent("Tenant", "other", "namespace a is in two tenants")
	must(t, s.admin.Resource(tenantResource).Delete(context.Background(), "other", metav1.DeleteOptions{}))
	d.tenantOf("a", "red")
	must(t, s.admin.Resource(peeringResource).Delete(context.Background(), "red-c", metav1.DeleteOptions{}))
	must(t, s.peering("red-c", `{tenants: [red, "ns:c"]}`))
	s.eventually("new peering takes effect", func() error {
		if d.sees("10.3.0.9") != after || other.sees("10.1.0.9") != "red" {
			return fmt.Errorf("open to %v and %v", d.open("red"), other.open(after))
		}
		return nil
	})
}

// hasEvent waits for an event of a cluster-scoped object.
func (s *server) hasEvent(kind, name, want string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s %s has an event with %q", kind, name, want), func() error {
		list, err := s.admin.Resource(eventResource).Namespace(metav1.NamespaceDefault).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range list.Items {
			about, _ := event.Object["involvedObject"].(map[string]any)
			message, _ := event.Object["message"].(string)
			if about["kind"] == kind && about["name"] == name && strings.Contains(message, want) {
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(list.Items))
	})
}

// open returns the tenants that pairs open to the tenant.
func (d *daemon) open(tenant string) (peers []string) {
	for _, pair := range d.Since(0).Pairs {
		if at := slices.Index(pair[:], tenant); at >= 0 {
			peers = append(peers, pair[1-at])
		}
	}
	return peers
}

const definitions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {kind: NetworkAttachmentDefinition, plural: network-attachment-definitions, singular: network-attachment-definition}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const tenantsRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: network-editor}
rules: [{apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: network-editors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: network-editor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: network-writers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: railwright-network-writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`

// networksOfOperators checks that RBAC rights on the objects are not enough to create or change one.
func networksOfOperators(t *testing.T, s *server) {
	for _, text := range append([]string{definitions}, strings.Split(tenantsRoles, "\n---\n")...) {
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(text), &object.Object))
		s.put(object)
	}
	network := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"config": `{"type": "host-device", "device": "p0"}`}}}
		object.SetAPIVersion("k8s.cni.cncf.io/v1")
		object.SetKind("NetworkAttachmentDefinition")
		object.SetName(name)
		return object
	}
	as := func(user string) dynamic.ResourceInterface {
		config := s.config()
		if user != "" {
			config.Impersonate.UserName = user
		}
		client, err := dynamic.NewForConfig(config)
		must(t, err)
		return client.Resource(schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}).Namespace("c")
	}
	ctx := context.Background()
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "railwright-network-writer")
	}
	s.eventually("tenant cannot create a network", func() error {
		_, err := as("tenant").Create(ctx, network("own"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !refused(err) {
			return fmt.Errorf("got %s", fmt.Sprint(err))
		}
		return nil
	})
	s.eventually("operator can create a network", func() error {
		_, err := as("operator").Create(ctx, network("theirs"), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	made, err := as("").Create(ctx, network("administrators"), metav1.CreateOptions{})
	must(t, err)
	made.SetLabels(map[string]string{"changed": "yes"})
	if _, err := as("tenant").Update(ctx, made, metav1.UpdateOptions{}); !refused(err) {
		t.Errorf("tenant changed a network: %v", err)
	}
	if _, err := as("operator").Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Errorf("operator cannot change a network: %v", err)
	}
}
