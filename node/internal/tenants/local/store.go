// Package local is the tenant directory of one node alone: nobody else holds an address.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"railwright/node/internal/durable"
	"railwright/node/internal/durable/watch"
	"railwright/node/internal/tenants"
)

const lookEvery = 2 * time.Second

// Store of one node.
type Store struct {
	// File with the tenants; empty: each namespace is one by itself.
	File string

	mutex    sync.Mutex
	sequence uint64
	record   *tenants.Record
	// policy as last read.
	policy tenants.Snapshot
	text   string
}

// Publish implements tenants.Store.
func (store *Store) Publish(_ context.Context, record *tenants.Record) error {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	store.record = record
	return nil
}

// Read implements tenants.Store.
func (store *Store) Read(context.Context) (tenants.Snapshot, error) {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	store.readPolicy()
	return store.snapshot(), nil
}

func (store *Store) snapshot() tenants.Snapshot {
	store.sequence++
	snapshot := store.policy
	snapshot.Sequence = store.sequence
	snapshot.Records = map[string]*tenants.Record{}
	if store.record != nil {
		snapshot.Records[store.record.ID()] = store.record
	}
	return snapshot
}

func (store *Store) readPolicy() (changed bool) {
	if store.File == "" {
		changed = store.policy.Policy == nil
		store.policy.Policy = &tenants.Policy{}
		return changed
	}
	content, err := durable.Read(store.File, tenants.LongestPolicy)
	if err == nil {
		if string(content) == store.text && store.policy.Policy != nil {
			return false
		}
		store.policy.Policy, err = tenants.ParsePolicy(content)
		store.text = string(content)
	}
	before := store.policy.PolicyFault
	store.policy.PolicyFault = ""
	if err != nil {
		store.policy.Policy, store.policy.PolicyFault = nil, explain(store.File, err)
	}
	return err == nil || store.policy.PolicyFault != before
}

// explain what is wrong with a file of tenants.
func explain(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("%s is not there; write {} into it where there are no tenants yet", path)
	}
	return fmt.Sprintf("%s: %v", path, err)
}

// Watch implements tenants.Store.
func (store *Store) Watch(ctx context.Context, changed func(tenants.Snapshot), _ func(error)) {
	var folders []string
	if store.File != "" {
		folders = []string{filepath.Dir(store.File)}
	}
	watch.Folders(ctx, folders, lookEvery, func() {
		store.mutex.Lock()
		fresh := store.readPolicy()
		snapshot := store.snapshot()
		store.mutex.Unlock()
		if fresh {
			changed(snapshot)
		}
	})
}

// Remove implements tenants.Store.
func (store *Store) Remove(context.Context, *tenants.Record) error { return nil }

// Pace implements tenants.Store: nobody is burdened.
func (store *Store) Pace(int) tenants.Pace {
	return tenants.Pace{Burst: 1000, Interval: time.Millisecond}
}
