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
		// Somebody else wrote it: labels and the like are theirs; the rest is not, and is looked at.
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

// find the object of a record; nil where it is to be made.
func (s *Store) find(ctx context.Context, record *tenants.Record) (*unstructured.Unstructured, error) {
	object, err := s.client.Resource(nodeAddresses).Get(ctx, record.ID(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		// One of an earlier life of this daemon, or that was there already: somebody took it away.
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
		return nil, fmt.Errorf("%w: revision %d of %s, this would be %d", tenants.ErrForeign, revision, record.ID(), record.Revision)
	}
	return object, nil
}

func (s *Store) create(ctx context.Context, record *tenants.Record) error {
	s.mutex.Lock()
	s.tried = record.ID()
	s.mutex.Unlock()
	node, err := s.client.Resource(nodes).Get(ctx, record.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server knows no Node %s; give this node's name there as `node`", record.Node)
	}
	if err != nil {
		return err
	}
	object := fresh(record.Node, node.GetUID())
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
