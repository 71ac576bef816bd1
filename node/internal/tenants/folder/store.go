// Package folder implements the tenant directory in a folder that all nodes share: a JSON file for each node, and
// tenants.json. It is for the lab, and for clusters without Kubernetes.
//
// The folder must show every node at once what another node renamed into it: use a local folder, or a network file
// system without attribute caching (NFS with `noac,lookupcache=none`, CephFS, Lustre). tenants.json must exist and
// contain at least {}: a folder without it counts as not mounted, not as a cluster with one node.
package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"railwright/node/internal/durable"
	"railwright/node/internal/durable/watch"
	"railwright/node/internal/tenants"
)

const (
	lookEvery     = 2 * time.Second
	longestRecord = 8 << 20
	recordSuffix  = ".json"
	leavingSuffix = ".leaving"
)

// Store is a tenants.Store in a shared folder.
type Store struct {
	folder string

	mutex    sync.Mutex
	sequence uint64
	cache    map[string]cached
	policy   cachedPolicy
	// published is the record that this process published last; tried is the record that it first tried to write.
	published *tenants.Record
	tried     string
}

// New returns a store in the folder.
func New(folder string) *Store { return &Store{folder: folder, cache: map[string]cached{}} }

func (s *Store) nodes() string { return filepath.Join(s.folder, "nodes") }

func (s *Store) path(id, suffix string) string { return filepath.Join(s.nodes(), id+suffix) }

// Publish implements tenants.Store.
func (s *Store) Publish(_ context.Context, record *tenants.Record) error {
	if err := s.mounted(); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := os.Mkdir(s.nodes(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.mayWrite(record); err != nil {
		return err
	}
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	s.tried = record.ID()
	if err := durable.Write(s.path(record.ID(), recordSuffix), content, 0o644); err != nil {
		return err
	}
	s.published = record
	return nil
}

// mayWrite checks that the file is as this node left it.
func (s *Store) mayWrite(record *tenants.Record) error {
	id := record.ID()
	if _, err := os.Lstat(s.path(id, leavingSuffix)); err == nil {
		return fmt.Errorf("%w: %s is leaving", tenants.ErrRemoved, id)
	}
	content, err := durable.Read(s.path(id, recordSuffix), longestRecord)
	if errors.Is(err, fs.ErrNotExist) {
		// The record is from an earlier run of this daemon or was already there, so it was removed.
		if record.Revision > 1 && (s.tried != id || s.published != nil && s.published.ID() == id) {
			return fmt.Errorf("%w: file of %s is gone", tenants.ErrRemoved, id)
		}
		return nil
	}
	if err != nil {
		return err
	}
	stored, err := parse(id, content)
	if err != nil {
		return nil // nobody can read it, so it may be overwritten
	}
	if stored.Revision >= record.Revision {
		return fmt.Errorf("%w: record %s has revision %d, want below %d", tenants.ErrForeign, id, stored.Revision, record.Revision)
	}
	return nil
}

// mounted checks that the shared folder is mounted.
func (s *Store) mounted() error {
	_, err := os.Stat(filepath.Join(s.folder, policyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s must have %s; mount the shared folder, or write {} to that file in a new one",
			s.folder, policyFile)
	}
	return err
}

// Read implements tenants.Store.
func (s *Store) Read(context.Context) (tenants.Snapshot, error) { return s.scan(true) }

// Watch implements tenants.Store.
func (s *Store) Watch(ctx context.Context, changed func(tenants.Snapshot), lost func(error)) {
	watch.Folders(ctx, []string{s.folder, s.nodes()}, lookEvery, func() {
		snapshot, err := s.scan(false)
		if err != nil {
			lost(err)
			return
		}
		changed(snapshot)
	})
}

// Remove implements tenants.Store.
func (s *Store) Remove(_ context.Context, record *tenants.Record) error {
	for _, suffix := range []string{recordSuffix, leavingSuffix} {
		if err := os.Remove(s.path(record.ID(), suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Pace implements tenants.Store. Writing a file costs little.
func (s *Store) Pace(int) tenants.Pace {
	return tenants.Pace{Burst: 20, Interval: 20 * time.Millisecond}
}

// Forget declares that a node is permanently off: its addresses are released once all other nodes have stopped using
// them. It must not be called for a running node. It returns the number of records that the node had.
func Forget(folder, node string) (int, error) {
	if err := tenants.CheckNode(node); err != nil {
		return 0, err
	}
	store := New(folder)
	snapshot, err := store.scan(true)
	if err != nil {
		return 0, err
	}
	found := 0
	for id, record := range snapshot.Records {
		if record.Node == node && !record.Leaving {
			if err := durable.Write(store.path(id, leavingSuffix), nil, 0o644); err != nil {
				return found, err
			}
			found++
		}
	}
	return found, nil
}
