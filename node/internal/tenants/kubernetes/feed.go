package kubernetes

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// feed holds the objects of a resource. The API server sends changes in the order in which they were made, and feed
// keeps that order: a node that sees its own change has seen all earlier ones. An informer does not guarantee that,
// because its queue merges changes of an object.
type feed struct {
	resource schema.GroupVersionResource
	client   dynamic.Interface
	// changed is called after changes, and lost when the API server is unreachable.
	changed func()
	lost    func(error)

	mutex   sync.Mutex
	synced  bool
	objects map[string]*unstructured.Unstructured
}

// run watches the resource until ctx ends.
func (f *feed) run(ctx context.Context) {
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := f.client.Resource(f.resource).List(ctx, options)
			return list, f.report(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watching, err := f.client.Resource(f.resource).Watch(ctx, options)
			return watching, f.report(ctx, err)
		},
	}
	reflector := cache.NewReflectorWithOptions(lister, &unstructured.Unstructured{}, f,
		cache.ReflectorOptions{Name: f.resource.Resource, TypeDescription: f.resource.String()})
	reflector.RunWithContext(ctx)
}

func (f *feed) report(ctx context.Context, err error) error {
	switch {
	case err == nil:
		f.changed()
	case ctx.Err() == nil:
		f.lost(err)
	}
	return err
}

// all returns the current objects. ok is false before the first list.
func (f *feed) all() (objects []*unstructured.Unstructured, ok bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, object := range f.objects {
		objects = append(objects, object)
	}
	return objects, f.synced
}

func (f *feed) put(value any) error {
	if object, known := value.(*unstructured.Unstructured); known {
		f.mutex.Lock()
		f.objects[object.GetName()] = object
		f.mutex.Unlock()
		f.changed()
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(value any) error { return f.put(value) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(value any) error { return f.put(value) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(value any) error {
	if object, known := value.(*unstructured.Unstructured); known {
		f.mutex.Lock()
		delete(f.objects, object.GetName())
		f.mutex.Unlock()
		f.changed()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(values []any, _ string) error {
	objects := make(map[string]*unstructured.Unstructured, len(values))
	for _, value := range values {
		if object, known := value.(*unstructured.Unstructured); known {
			objects[object.GetName()] = object
		}
	}
	f.mutex.Lock()
	f.objects, f.synced = objects, true
	f.mutex.Unlock()
	f.changed()
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (f *feed) Resync() error { return nil }
