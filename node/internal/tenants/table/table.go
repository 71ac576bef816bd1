// Package table implements the tenant directory's store in memory, for a single node, or in a file of a folder that all
// nodes share, for the lab and for clusters without Kubernetes. The operators' policy is a file.
//
// A shared folder must support flock and show every node at once what another node renamed into it: a local folder, or a
// network file system without attribute caching.
package table

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"railwright/node/internal/durable"
	"railwright/node/internal/durable/watch"
	"railwright/node/internal/tenants"
)

const (
	lookEvery = 2 * time.Second
	// maxLog limits the changes that a watch can start from.
	maxLog = 1 << 16
)

// Table is a tenants.Store.
type Table struct {
	// path is the shared file, or "".
	path string
	// policy is the policy's file, or "".
	policy string

	mutex   sync.Mutex
	content content
	scopes  map[scope]*changes
}

type scope struct {
	kind  tenants.Kind
	space string
}

type key struct {
	scope
	name string
}

// content is what the file has.
type content struct {
	Version uint64           `json:"version"`
	Objects []tenants.Object `json:"objects"`
}

// changes are the objects of a scope and its last changes, in order.
type changes struct {
	objects map[string]tenants.Object
	log     []tenants.Event
	// forgotten is the version of the last change that is not in the log.
	forgotten uint64
	// moved is closed at every change.
	moved chan struct{}
}

// New returns a table in memory. policy names the policy's file; without one each namespace is a tenant. backup is what Backup
// returned, or nil.
func New(policy string, backup []byte) (*Table, error) {
	made := &Table{policy: policy, scopes: map[scope]*changes{}}
	return made, made.take(backup)
}

// Open returns the table in a shared folder: state.json, and tenants.json with the policy. tenants.json must exist and
// contain at least {}: a folder without it counts as not mounted, not as a cluster with one node.
func Open(folder string) (*Table, error) {
	made, err := New(filepath.Join(folder, "tenants.json"), nil)
	made.path = filepath.Join(folder, "state.json")
	return made, err
}

// Backup returns the content.
func (t *Table) Backup() []byte {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.encode()
}

func (t *Table) encode() []byte {
	stored := content{Version: t.content.Version}
	for _, changed := range t.scopes {
		for _, object := range changed.objects {
			stored.Objects = append(stored.Objects, object)
		}
	}
	slices.SortFunc(stored.Objects, func(a, b tenants.Object) int { return cmp.Compare(a.Version, b.Version) })
	encoded, err := json.Marshal(stored)
	if err != nil {
		panic(err) // specs are JSON
	}
	return encoded
}

// take makes the text the content, and the difference changes.
func (t *Table) take(text []byte) error {
	if text == nil {
		return nil
	}
	var stored content
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	if stored.Version == t.content.Version {
		return nil
	}
	var events []tenants.Event
	there := map[key]bool{}
	for _, object := range stored.Objects {
		in := scope{object.Kind, object.Space}
		there[key{in, object.Name}] = true
		if t.of(in).objects[object.Name].Version != object.Version {
			events = append(events, tenants.Event{Object: object})
		}
	}
	for in, changed := range t.scopes {
		for name, object := range changed.objects {
			if !there[key{in, name}] {
				object.Version = stored.Version
				events = append(events, tenants.Event{Object: object, Deleted: true})
			}
		}
	}
	slices.SortFunc(events, func(a, b tenants.Event) int { return cmp.Compare(a.Object.Version, b.Object.Version) })
	for _, event := range events {
		t.apply(event)
	}
	t.content.Version = stored.Version
	return nil
}

func (t *Table) of(in scope) *changes {
	found := t.scopes[in]
	if found == nil {
		found = &changes{objects: map[string]tenants.Object{}, moved: make(chan struct{})}
		t.scopes[in] = found
	}
	return found
}

func (t *Table) apply(event tenants.Event) {
	changed := t.of(scope{event.Object.Kind, event.Object.Space})
	if event.Deleted {
		delete(changed.objects, event.Object.Name)
	} else {
		changed.objects[event.Object.Name] = event.Object
	}
	changed.log = append(changed.log, event)
	if len(changed.log) > maxLog {
		changed.forgotten = changed.log[0].Object.Version
		changed.log = slices.Delete(changed.log, 0, 1)
	}
	t.content.Version = max(t.content.Version, event.Object.Version)
	close(changed.moved)
	changed.moved = make(chan struct{})
}

// with calls do with the current content, alone among all processes if it is a shared file, and stores it if do changed
// it.
func (t *Table) with(ctx context.Context, do func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.path == "" {
		return do()
	}
	if _, err := os.Stat(t.policy); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s must have tenants.json; mount the shared folder, or write {} to that file in a new one", filepath.Dir(t.policy))
	}
	lock, err := os.OpenFile(t.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	stored, err := durable.Read(t.path, math.MaxInt64-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := t.take(stored); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	before := t.content.Version
	if err := do(); err != nil || t.content.Version == before {
		return err
	}
	return durable.Write(t.path, t.encode(), 0o644)
}

// Create implements tenants.Store.
func (t *Table) Create(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	err := t.with(ctx, func() error {
		if _, found := t.of(scope{object.Kind, object.Space}).objects[object.Name]; found {
			return tenants.ErrExists
		}
		object.Version, object.UID, object.Off = t.content.Version+1, tenants.NewID(), ""
		t.apply(tenants.Event{Object: object})
		return nil
	})
	return object, err
}

// check returns the object of a precondition.
func (t *Table) check(object tenants.Object) (tenants.Object, error) {
	held, found := t.of(scope{object.Kind, object.Space}).objects[object.Name]
	switch {
	case !found:
		return held, tenants.ErrGone
	case held.UID != object.UID || held.Version != object.Version:
		return held, tenants.ErrConflict
	}
	return held, nil
}

// Update implements tenants.Store.
func (t *Table) Update(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	err := t.with(ctx, func() error {
		held, err := t.check(object)
		if err != nil {
			return err
		}
		if isSame(object.Spec, held.Spec) {
			object = held // an API server does the same
			return nil
		}
		object.Version, object.Off = t.content.Version+1, held.Off
		t.apply(tenants.Event{Object: object})
		return nil
	})
	return object, err
}

// isSame reports whether two specs have the same fields, in any order.
func isSame(a, b json.RawMessage) bool {
	var first, second any
	return json.Unmarshal(a, &first) == nil && json.Unmarshal(b, &second) == nil && reflect.DeepEqual(first, second)
}

// Delete implements tenants.Store.
func (t *Table) Delete(ctx context.Context, object tenants.Object) error {
	return t.with(ctx, func() error {
		held, err := t.check(object)
		if err != nil {
			return err
		}
		held.Version = t.content.Version + 1
		t.apply(tenants.Event{Object: held, Deleted: true})
		return nil
	})
}

// SetOff declares the machine of a RailNode off.
func (t *Table) SetOff(ctx context.Context, name, off string) error {
	return t.with(ctx, func() error {
		object, found := t.of(scope{tenants.KindNode, ""}).objects[name]
		if !found {
			return tenants.ErrGone
		}
		object.Version, object.Off = t.content.Version+1, off
		t.apply(tenants.Event{Object: object})
		return nil
	})
}

// Get implements tenants.Store.
func (t *Table) Get(ctx context.Context, kind tenants.Kind, space, name string) (object tenants.Object, err error) {
	err = t.with(ctx, func() error {
		held, found := t.of(scope{kind, space}).objects[name]
		if !found {
			return tenants.ErrGone
		}
		object = held
		return nil
	})
	return object, err
}

// List implements tenants.Store.
func (t *Table) List(ctx context.Context, kind tenants.Kind, space string) (list tenants.List, err error) {
	err = t.with(ctx, func() error {
		list.Version = t.content.Version
		for _, object := range t.of(scope{kind, space}).objects {
			list.Objects = append(list.Objects, object)
		}
		return nil
	})
	slices.SortFunc(list.Objects, func(a, b tenants.Object) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}

// Watch implements tenants.Store.
func (t *Table) Watch(ctx context.Context, kind tenants.Kind, space string, version uint64, heard func(tenants.Event)) error {
	if t.path != "" {
		ctx, end := context.WithCancel(ctx)
		defer end()
		go watch.Folders(ctx, []string{filepath.Dir(t.path)}, lookEvery, func() { _ = t.with(ctx, func() error { return nil }) })
	}
	for {
		t.mutex.Lock()
		changed := t.of(scope{kind, space})
		moved := changed.moved
		if version < changed.forgotten {
			t.mutex.Unlock()
			return tenants.ErrExpired
		}
		after, _ := slices.BinarySearchFunc(changed.log, version+1, func(event tenants.Event, version uint64) int {
			return cmp.Compare(event.Object.Version, version)
		})
		events := slices.Clone(changed.log[after:])
		t.mutex.Unlock()
		for _, event := range events {
			heard(event)
			version = event.Object.Version
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// WatchPolicy implements tenants.Store.
func (t *Table) WatchPolicy(ctx context.Context, heard func(tenants.Policy), lost func(error)) {
	if t.policy == "" {
		heard(tenants.Policy{})
		<-ctx.Done()
		return
	}
	known, first := "", true
	watch.Folders(ctx, []string{filepath.Dir(t.policy)}, lookEvery, func() {
		text, err := durable.Read(t.policy, tenants.LongestPolicy)
		if err == nil && string(text) == known && !first {
			return
		}
		var policy *tenants.Policy
		if err == nil {
			policy, err = tenants.ParsePolicy(text)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			lost(fmt.Errorf("%s does not exist; create it with {} if there are no tenants yet", t.policy))
		case err != nil:
			lost(fmt.Errorf("%s: %w", t.policy, err))
		default:
			heard(*policy)
			known, first = string(text), false
		}
	})
}

// Namespace implements tenants.Store. Its namespaces have no UID.
func (t *Table) Namespace(_ context.Context, name string) (tenants.Namespace, error) {
	return tenants.Namespace{Name: name}, nil
}

// Machine implements tenants.Store. It knows nothing about machines.
func (t *Table) Machine(context.Context, string) (tenants.Machine, error) {
	return tenants.Machine{}, nil
}
