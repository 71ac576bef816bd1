package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"railwright/node/internal/tenants"
)

// gather is how long changes of the policy are collected before they are reported.
const gather = 5 * time.Millisecond

var (
	tenantObjects = place{resource: "tenants", custom: true}
	peerings      = place{resource: "tenantpeerings", custom: true}
)

// mirror has the objects of a place as last heard.
type mirror struct {
	mutex   sync.Mutex
	objects map[string]item
	synced  bool
}

// take takes in the objects. It copies the map, because the caller changes it.
func (m *mirror) take(all map[string]item) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.objects, m.synced = maps.Clone(all), true
}

// get returns the objects, which must not be changed. ok is false before the first list.
func (m *mirror) get() (all map[string]item, ok bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.objects, m.synced
}

// mirrorAll follows places until ctx ends. It calls changed after changes, and at least every so often, but not before all are
// listed.
func (a api) mirrorAll(
	ctx context.Context, places []place, every time.Duration, changed func([]map[string]item), lost func(error),
) {
	mirrors := make([]mirror, len(places))
	news := make(chan struct{}, 1)
	var feeds sync.WaitGroup
	defer feeds.Wait()
	for i, at := range places {
		feeds.Go(func() {
			a.follow(ctx, at, func(all map[string]item) {
				mirrors[i].take(all)
				select {
				case news <- struct{}{}:
				default:
				}
			}, lost)
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-time.After(every):
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		complete, listed := make([]map[string]item, len(places)), true
		for i := range mirrors {
			content, ok := mirrors[i].get()
			complete[i] = content
			listed = listed && ok
		}
		if listed {
			changed(complete)
		}
	}
}

// WatchPolicy implements tenants.Store.
func (s *Store) WatchPolicy(ctx context.Context, heard func(tenants.Policy), lost func(error)) {
	s.api.mirrorAll(ctx, []place{tenantObjects, peerings}, repeatAfter, func(all []map[string]item) {
		read := policy(all[0], all[1])
		s.recordFaults(read, all[0], all[1])
		heard(read)
	}, lost)
}

// policy returns the policy of the objects, in the order of their names.
func policy(groups, pairs map[string]item) (read tenants.Policy) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		read.Tenants = append(read.Tenants, tenant(groups[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		read.Peerings = append(read.Peerings, peering(pairs[name]))
	}
	return read
}

// tenant returns the tenant of an object, with its problem in Fault.
func tenant(object item) tenants.Tenant {
	read := tenants.Tenant{Name: object.Metadata.Name}
	var text struct {
		Namespaces []string `json:"namespaces"`
		Prefixes   []string `json:"prefixes"`
	}
	err := decode(object.Spec, &text)
	read.Namespaces = text.Namespaces
	for _, word := range text.Prefixes {
		prefix, fault := netip.ParsePrefix(word)
		if fault != nil && err == nil {
			err = fault
		}
		read.Prefixes = append(read.Prefixes, prefix)
	}
	if err == nil {
		err = read.Check()
	}
	if err != nil {
		read.Fault, read.Prefixes = err.Error(), nil
	}
	return read
}

// peering returns the peering of an object; an invalid one opens nothing.
func peering(object item) tenants.Peering {
	var text struct {
		Tenants []string `json:"tenants"`
	}
	if err := decode(object.Spec, &text); err != nil || len(text.Tenants) != 2 {
		return tenants.Peering{Fault: fmt.Sprintf("%.80q must name two tenants", object.Metadata.Name)}
	}
	return tenants.Peering{A: text.Tenants[0], B: text.Tenants[1], Made: object.Metadata.CreationTimestamp}
}
