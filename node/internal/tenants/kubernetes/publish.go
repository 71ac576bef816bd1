package kubernetes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"railwright/node/internal/tenants"
)

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// Publish implements tenants.Store.
func (s *Store) Publish(ctx context.Context, record *tenants.Record) error {
	s.mutex.Lock()
	current := s.current
	s.mutex.Unlock()
	if current == nil || current.GetName() != record.ID() {
		found, err := s.find(ctx, record)
		if err != nil {
			return err
		}
		if found == nil {
			return s.create(ctx, record)
		}
		current = found
	}
	written, err := s.update(ctx, current, record)
	if apierrors.IsConflict(err) {
		// Another client changed the object. Labels and the like are its own; the rest is checked.
		current, err = s.find(ctx, record)
		if err == nil && current != nil {
			written, err = s.update(ctx, current, record)
		}
	}
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w: %s is gone", tenants.ErrRemoved, record.ID())
	}
	if err != nil {
		s.remember(nil, nil)
		return err
	}
	s.remember(written, record)
	return nil
}

func (s *Store) remember(object *unstructured.Unstructured, record *tenants.Record) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.current = object
	if record != nil {
		s.published = record
	}
}

// find returns the object of a record, or nil if it must be created.
func (s *Store) find(ctx context.Context, record *tenants.Record) (*unstructured.Unstructured, error) {
	object, err := s.client.Resource(nodeAddresses).Get(ctx, record.ID(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		// The record is from an earlier run of this daemon or already existed, so it was removed.
		if record.Revision > 1 && (s.tried != record.ID() || s.published != nil && s.published.ID() == record.ID()) {
			return nil, fmt.Errorf("%w: %s is gone", tenants.ErrRemoved, record.ID())
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if object.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("%w: %s is being deleted", tenants.ErrRemoved, record.ID())
	}
	if revision, _, _ := unstructured.NestedInt64(object.Object, "spec", "revision"); revision >= record.Revision {
		return nil, fmt.Errorf("%w: record %s has revision %d, want below %d", tenants.ErrForeign, record.ID(), revision, record.Revision)
	}
	return object, nil
}

func (s *Store) create(ctx context.Context, record *tenants.Record) error {
	s.mutex.Lock()
	s.tried = record.ID()
	s.mutex.Unlock()
	node, err := s.client.Resource(nodes).Get(ctx, record.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("no Node %s in the API server; set `node` to this node's name there", record.Node)
	}
	if err != nil {
		return err
	}
	object := newObject(record.Node, node.GetUID())
	object.SetName(record.ID())
	if err := fill(object, record); err != nil {
		return err
	}
	written, err := s.client.Resource(nodeAddresses).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.remember(written, record)
	return nil
}

func (s *Store) update(
	ctx context.Context, stored *unstructured.Unstructured, record *tenants.Record,
) (*unstructured.Unstructured, error) {
	if stored.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("%w: %s is being deleted", tenants.ErrRemoved, record.ID())
	}
	object := stored.DeepCopy()
	if err := fill(object, record); err != nil {
		return nil, err
	}
	return s.client.Resource(nodeAddresses).Update(ctx, object, metav1.UpdateOptions{})
}
