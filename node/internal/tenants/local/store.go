// Package local implements the tenant directory of a single node: no other node holds an address.
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

// Store is a tenants.Store of a single node.
type Store struct {
	// File lists the tenants. If empty, each namespace is a tenant.
	File string

	mutex    sync.Mutex
	sequence uint64
	record   *tenants.Record
	// policy is the last policy read.
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

// explain returns what is wrong with a file of tenants.
func explain(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("%s does not exist; create it with {} if there are no tenants yet", path)
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

// Pace implements tenants.Store. There is no server to protect.
func (s *Store) Pace(int) tenants.Pace {
	return tenants.Pace{Burst: 1000, Interval: time.Millisecond}
}
