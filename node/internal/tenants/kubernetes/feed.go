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

// feed of the objects of one resource. The API server tells changes in the order in which they were made, and this
// keeps them in it: whoever sees its own change has seen all that were made before. An informer does not promise that,
// because its queue merges changes of an object.
type feed struct {
	resource schema.GroupVersionResource
	client   dynamic.Interface
	// changed and lost tell of news, and that none can be heard.
	changed func()
	lost    func(error)

	mutex   sync.Mutex
	synced  bool
	objects map[string]*unstructured.Unstructured
}

// run until ctx ends.
func (feed *feed) run(ctx context.Context) {
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := feed.client.Resource(feed.resource).List(ctx, options)
			return list, feed.heard(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watching, err := feed.client.Resource(feed.resource).Watch(ctx, options)
			return watching, feed.heard(ctx, err)
		},
	}
	reflector := cache.NewReflectorWithOptions(lister, &unstructured.Unstructured{}, feed,
		cache.ReflectorOptions{Name: feed.resource.Resource, TypeDescription: feed.resource.String()})
	reflector.RunWithContext(ctx)
}

func (feed *feed) heard(ctx context.Context, err error) error {
	switch {
	case err == nil:
		feed.changed()
	case ctx.Err() == nil:
		feed.lost(err)
	}
	return err
}

// all objects now; not ok before the first list is there.
func (feed *feed) all() (objects []*unstructured.Unstructured, ok bool) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	for _, object := range feed.objects {
		objects = append(objects, object)
	}
	return objects, feed.synced
}

func (feed *feed) put(value any) error {
	if object, known := value.(*unstructured.Unstructured); known {
		feed.mutex.Lock()
		feed.objects[object.GetName()] = object
		feed.mutex.Unlock()
		feed.changed()
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (feed *feed) Add(value any) error { return feed.put(value) }

// Update implements cache.ReflectorStore.
func (feed *feed) Update(value any) error { return feed.put(value) }

// Delete implements cache.ReflectorStore.
func (feed *feed) Delete(value any) error {
	if object, known := value.(*unstructured.Unstructured); known {
		feed.mutex.Lock()
		delete(feed.objects, object.GetName())
		feed.mutex.Unlock()
		feed.changed()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (feed *feed) Replace(values []any, _ string) error {
	objects := make(map[string]*unstructured.Unstructured, len(values))
	for _, value := range values {
		if object, known := value.(*unstructured.Unstructured); known {
			objects[object.GetName()] = object
		}
	}
	feed.mutex.Lock()
	feed.objects, feed.synced = objects, true
	feed.mutex.Unlock()
	feed.changed()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (feed *feed) Resync() error { return nil }
