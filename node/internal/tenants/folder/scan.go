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
	// mostFiles in the folder: more is a fault or an attack.
	mostFiles = 50000
)

var recordName = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*\.[0-9a-f]{8}$`)

// cached record of a file that has not changed since.
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

// stamp of a file's content, as far as one can tell without reading it.
type stamp struct {
	changed time.Time
	size    int64
	inode   uint64
}

// scan the folder. Anew: files are read even if they look unchanged.
func (s *Store) scan(anew bool) (tenants.Snapshot, error) {
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
		entry, found := s.load(id, anew)
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
	s.readPolicy(&snapshot, anew)
	// A folder that went away meanwhile has no records, and none of them was deleted.
	if err := s.mounted(); err != nil {
		return tenants.Snapshot{}, err
	}
	return snapshot, nil
}

// list the records' names. One look can miss a file that is being replaced; so there are two, and what was known before
// is looked for by name.
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
		if len(entries) > mostFiles {
			return nil, nil, fmt.Errorf("%s has %d files, at most %d", s.nodes(), len(entries), mostFiles)
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

func (s *Store) load(id string, anew bool) (cached, bool) {
	path := s.path(id, recordSuffix)
	seen, err := stampOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cached{}, false
	}
	before, known := s.cache[id]
	if err == nil && known && !anew && before.stamp == seen {
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
		entry.record = before.record // the same: whoever compares need not look inside
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

// parse a record; it has to be the one that the file's name says.
func parse(id string, content []byte) (*tenants.Record, error) {
	record := &tenants.Record{}
	if err := tenants.UnmarshalStrict(content, record); err != nil {
		return nil, err
	}
	if err := record.Check(); err != nil {
		return nil, err
	}
	if record.ID() != id {
		return nil, fmt.Errorf("it is the record of %s", record.ID())
	}
	return record, nil
}

func (s *Store) readPolicy(snapshot *tenants.Snapshot, anew bool) {
	path := filepath.Join(s.folder, policyFile)
	seen, err := stampOf(path)
	if err != nil || anew || seen != s.policy.stamp {
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
