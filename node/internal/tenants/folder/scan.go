package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"railwright/node/internal/durable"
	"railwright/node/internal/tenants"
)

const (
	policyFile = "tenants.json"
	// maxFiles limits the files in the folder. More is a bug or an attack.
	maxFiles = 50000
)

var recordName = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*\.[0-9a-f]{8}$`)

// cached is the record of an unchanged file.
type cached struct {
	stamp  stamp
	record *tenants.Record
	fault  *tenants.Unreadable
}

type cachedPolicy struct {
	stamp  stamp
	policy *tenants.Policy
	fault  string
}

// stamp identifies a file's content as far as possible without reading it.
type stamp struct {
	changed time.Time
	size    int64
	inode   uint64
}

// scan reads the folder. If force is true, it reads unchanged files too.
func (s *Store) scan(force bool) (tenants.Snapshot, error) {
	if err := s.mounted(); err != nil {
		return tenants.Snapshot{}, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ids, leaving, err := s.list()
	if err != nil {
		return tenants.Snapshot{}, err
	}
	s.sequence++
	snapshot := tenants.Snapshot{
		Sequence: s.sequence, Records: make(map[string]*tenants.Record, len(ids)), Unreadable: map[string]tenants.Unreadable{},
	}
	for id := range ids {
		entry, found := s.load(id, force)
		switch {
		case !found:
			delete(s.cache, id)
		case entry.fault != nil:
			snapshot.Unreadable[id] = *entry.fault
		case leaving[id]:
			marked := *entry.record
			marked.Leaving = true
			snapshot.Records[id] = &marked
		default:
			snapshot.Records[id] = entry.record
		}
	}
	s.readPolicy(&snapshot, force)
	// A folder that was unmounted meanwhile has no records, although none was deleted.
	if err := s.mounted(); err != nil {
		return tenants.Snapshot{}, err
	}
	return snapshot, nil
}

// list returns the records' names. A single listing can miss a file that is being replaced, so it lists twice and adds
// the known names.
func (s *Store) list() (ids, leaving map[string]bool, err error) {
	ids, leaving = map[string]bool{}, map[string]bool{}
	for id := range s.cache {
		ids[id] = true
	}
	for range 2 {
		entries, err := os.ReadDir(s.nodes())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		if len(entries) > maxFiles {
			return nil, nil, fmt.Errorf("%s must have at most %d files, got %d", s.nodes(), maxFiles, len(entries))
		}
		for _, entry := range entries {
			if id, found := strings.CutSuffix(entry.Name(), recordSuffix); found && recordName.MatchString(id) {
				ids[id] = true
			}
			if id, found := strings.CutSuffix(entry.Name(), leavingSuffix); found && recordName.MatchString(id) {
				leaving[id] = true
			}
		}
	}
	return ids, leaving, nil
}

func (s *Store) load(id string, force bool) (cached, bool) {
	path := s.path(id, recordSuffix)
	seen, err := stampOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cached{}, false
	}
	before, known := s.cache[id]
	if err == nil && known && !force && before.stamp == seen {
		return before, true
	}
	entry := cached{stamp: seen}
	content, err := durable.Read(path, longestRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return cached{}, false
	}
	if err == nil {
		entry.record, err = parse(id, content)
	}
	if err != nil {
		suspected := tenants.Suspect(content, err)
		entry.fault = &suspected
	} else if known && before.record != nil && before.record.Revision == entry.record.Revision {
		entry.record = before.record // equal, so a comparison by pointer is enough
	}
	s.cache[id] = entry
	return entry, true
}

func stampOf(path string) (stamp, error) {
	status, err := os.Lstat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{changed: status.ModTime(), size: status.Size(), inode: inode(status)}, nil
}

// parse parses a record, which must match the file's name.
func parse(id string, content []byte) (*tenants.Record, error) {
	record := &tenants.Record{}
	if err := tenants.UnmarshalStrict(content, record); err != nil {
		return nil, err
	}
	if err := record.Check(); err != nil {
		return nil, err
	}
	if record.ID() != id {
		return nil, fmt.Errorf("file has the record of %s", record.ID())
	}
	return record, nil
}

func (s *Store) readPolicy(snapshot *tenants.Snapshot, force bool) {
	path := filepath.Join(s.folder, policyFile)
	seen, err := stampOf(path)
	if err != nil || force || seen != s.policy.stamp {
		s.policy = cachedPolicy{stamp: seen}
		content, err := durable.Read(path, tenants.LongestPolicy)
		if err == nil {
			s.policy.policy, err = tenants.ParsePolicy(content)
		}
		if err != nil {
			s.policy.fault = fmt.Sprintf("%s: %v", path, err)
		}
	}
	snapshot.Policy, snapshot.PolicyFault = s.policy.policy, s.policy.fault
}
