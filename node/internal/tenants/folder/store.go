// Package folder is the tenant directory in a folder that all nodes share: one JSON file for each node, and
// tenants.json. It is for the lab, and for clusters without Kubernetes.
//
// The folder has to show every node at once what another has renamed into it: a local one, or a network file system
// without attribute caching (NFS with `noac,lookupcache=none`, CephFS, Lustre). tenants.json has to be there, at least
// with {} in it: an empty folder is taken for one that is not mounted, not for a cluster of one node.
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

// Store in a shared folder.
type Store struct {
	folder string

	mutex    sync.Mutex
	sequence uint64
	cache    map[string]cached
	policy   cachedPolicy
	// own is what this process published last; tried is the record that it first wrote to, with or without success.
	own   *tenants.Record
	tried string
}

// New store in the folder.
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
	s.own = record
	return nil
}

// mayWrite: the file is as this node left it.
func (s *Store) mayWrite(record *tenants.Record) error {
	id := record.ID()
	if _, err := os.Lstat(s.path(id, leavingSuffix)); err == nil {
		return fmt.Errorf("%w: %s is leaving", tenants.ErrRemoved, id)
	}
	content, err := durable.Read(s.path(id, recordSuffix), longestRecord)
	if errors.Is(err, fs.ErrNotExist) {
		// One of an earlier life of this daemon, or that was there already: somebody took it away.
		if record.Revision > 1 && (s.tried != id || s.own != nil && s.own.ID() == id) {
			return fmt.Errorf("%w: the file of %s is gone", tenants.ErrRemoved, id)
		}
		return nil
	}
	if err != nil {
		return err
	}
	stored, err := parse(id, content)
	if err != nil {
		return nil // unreadable to all: better written anew
	}
	if stored.Revision >= record.Revision {
		return fmt.Errorf("%w: revision %d of %s, this would be %d", tenants.ErrForeign, stored.Revision, id, record.Revision)
	}
	return nil
}

// mounted: the folder is the one that was set up for this.
func (s *Store) mounted() error {
	_, err := os.Stat(filepath.Join(s.folder, policyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no %s; mount the shared folder, or write {} into that file where it is a new one",
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

// Pace implements tenants.Store: a file costs little.
func (s *Store) Pace(int) tenants.Pace {
	return tenants.Pace{Burst: 20, Interval: 20 * time.Millisecond}
}

// Forget says that a node is off and will not come back as it was: its addresses are given up once all others have let
// go of them. Of a node that still runs this would be wrong. Says how many records it had.
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
