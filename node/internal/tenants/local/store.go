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
func (s *Store) Publish(_ context.Context, record *tenants.Record) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.record = record
	return nil
}

// Read implements tenants.Store.
func (s *Store) Read(context.Context) (tenants.Snapshot, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.readPolicy()
	return s.snapshot(), nil
}

func (s *Store) snapshot() tenants.Snapshot {
	s.sequence++
	snapshot := s.policy
	snapshot.Sequence = s.sequence
	snapshot.Records = map[string]*tenants.Record{}
	if s.record != nil {
		snapshot.Records[s.record.ID()] = s.record
	}
	return snapshot
}

func (s *Store) readPolicy() (changed bool) {
	if s.File == "" {
		changed = s.policy.Policy == nil
		s.policy.Policy = &tenants.Policy{}
		return changed
	}
	content, err := durable.Read(s.File, tenants.LongestPolicy)
	if err == nil {
		if string(content) == s.text && s.policy.Policy != nil {
			return false
		}
		s.policy.Policy, err = tenants.ParsePolicy(content)
		s.text = string(content)
	}
	before := s.policy.PolicyFault
	s.policy.PolicyFault = ""
	if err != nil {
		s.policy.Policy, s.policy.PolicyFault = nil, explain(s.File, err)
	}
	return err == nil || s.policy.PolicyFault != before
}

// explain what is wrong with a file of tenants.
func explain(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("%s is not there; write {} into it where there are no tenants yet", path)
	}
	return fmt.Sprintf("%s: %v", path, err)
}

// Watch implements tenants.Store.
func (s *Store) Watch(ctx context.Context, changed func(tenants.Snapshot), _ func(error)) {
	var folders []string
	if s.File != "" {
		folders = []string{filepath.Dir(s.File)}
	}
	watch.Folders(ctx, folders, lookEvery, func() {
		s.mutex.Lock()
		fresh := s.readPolicy()
		snapshot := s.snapshot()
		s.mutex.Unlock()
		if fresh {
			changed(snapshot)
		}
	})
}

// Remove implements tenants.Store.
func (s *Store) Remove(context.Context, *tenants.Record) error { return nil }

// Pace implements tenants.Store: nobody is burdened.
func (s *Store) Pace(int) tenants.Pace {
	return tenants.Pace{Burst: 1000, Interval: time.Millisecond}
}
