// Package store keeps the desired state of a node on disk: one file for each attachment, written before anything is
// programmed, so that no crash leaves a flow or a route without an owner.
//
// A file gets its final name only after its content is on disk, and carries a checksum. A damaged file is moved to
// `damaged/` and reported; it is neither deleted nor used.
package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
)

// Record is the content of a file.
type Record struct {
	attachment.Attachment
	// Boot is the boot ID under which the attachment was created. No network namespace outlives a boot.
	Boot string `json:"boot"`
}

// Leaving reports whether every part was released and only cleanup remains.
func (r Record) Leaving() bool { return len(r.Part) == 0 }

// Damaged is a file that Open could not use.
type Damaged struct {
	// MovedTo is the file's new path.
	MovedTo string
	Err     error
}

// Conflict is returned when another record holds a key, an address or a host interface.
type Conflict struct {
	Resource string
	Holder   Record
}

func (c *Conflict) Error() string {
	pod := c.Holder.Pod
	return fmt.Sprintf("%s is in use by %s of pod %s/%s", c.Resource, c.Holder.Key.Interface, pod.Namespace,
		pod.Name)
}

// ErrNumbers is returned when all attachment numbers of the node are in use.
var ErrNumbers = errors.New("node already has 65535 attachments, the maximum")

// Store is safe for concurrent use, as long as each key has a single writer.
type Store struct {
	folder string

	mutex   sync.Mutex
	records map[attachment.Key]Record
	numbers numbers
	// pending holds reserved records whose file is not yet written: they own their number and addresses, but All does
	// not return them.
	pending map[attachment.Key]Record
}

// Open creates the folder (0700) if it is missing and reads its records.
func Open(folder string) (*Store, []Damaged, error) {
	if err := os.MkdirAll(filepath.Join(folder, damagedFolder), 0o700); err != nil {
		return nil, nil, fmt.Errorf("create state folder: %w", err)
	}
	store := &Store{folder: folder, records: map[attachment.Key]Record{}, pending: map[attachment.Key]Record{}}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("read state folder: %w", err)
	}
	var damaged []Damaged
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		switch {
		case entry.IsDir():
		case isTemporary(entry.Name()):
			// A crash interrupted this write, so its request never got a reply.
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("remove partial file from state folder: %w", err)
			}
		default:
			if cause := store.load(path); cause != nil {
				moved, err := moveAway(path)
				if err != nil {
					return nil, nil, fmt.Errorf("move damaged file %s (%w) away: %w", path, cause, err)
				}
				damaged = append(damaged, Damaged{moved, cause})
			}
		}
	}
	if err := durable.SyncFolder(folder); err != nil {
		return nil, nil, fmt.Errorf("sync state folder: %w", err)
	}
	return store, damaged, nil
}

func (s *Store) load(path string) error {
	record, err := readFile(path)
	if err != nil {
		return err
	}
	if conflict := s.conflict(record); conflict != nil {
		return conflict
	}
	if !s.numbers.take(record.Number) {
		return fmt.Errorf("number %d belongs to another attachment", record.Number)
	}
	s.records[record.Key] = record
	return nil
}

// Reserve numbers a new record and writes it. admit may refuse it in view of all other records, including those being
// written. Reserve returns a *Conflict if the key, an address or the host interface is in use.
func (s *Store) Reserve(record Record, admit func(others iter.Seq[Record]) error) (Record, error) {
	record, err := s.hold(record, admit)
	if err != nil {
		return Record{}, err
	}
	err = writeFile(s.folder, record)
	if err != nil {
		// If only the folder's sync failed, the file may exist under its name.
		err = errors.Join(err, removeFile(s.folder, record.Key))
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.pending, record.Key)
	if err != nil {
		s.numbers.release(record.Number)
		return Record{}, err
	}
	s.records[record.Key] = record
	return record, nil
}

func (s *Store) hold(record Record, admit func(iter.Seq[Record]) error) (Record, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if conflict := s.conflict(record); conflict != nil {
		return Record{}, conflict
	}
	if admit != nil {
		if err := admit(s.allHeld()); err != nil {
			return Record{}, err
		}
	}
	number, found := s.numbers.next()
	if !found {
		return Record{}, ErrNumbers
	}
	record.Number = number
	s.pending[record.Key] = record
	return record, nil
}

// Put rewrites an existing record. Its number and addresses must not change, and its host interface may only go. On error the
// old record remains in memory and on disk.
func (s *Store) Put(record Record) error {
	if _, found := s.Get(record.Key); !found {
		return fmt.Errorf("no record of %s", record.Key)
	}
	if err := writeFile(s.folder, record); err != nil {
		return err
	}
	s.Remember(record)
	return nil
}

// Remember updates a record in memory only: on a full disk an attachment that leaves must still be undone.
func (s *Store) Remember(record Record) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, found := s.records[record.Key]; found {
		s.records[record.Key] = record
	}
}

// Remove deletes the record and its file. It is not an error if there is none.
func (s *Store) Remove(key attachment.Key) error {
	if err := removeFile(s.folder, key); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if record, found := s.records[key]; found {
		delete(s.records, key)
		s.numbers.release(record.Number)
	}
	return nil
}

// Get returns the record of the key.
func (s *Store) Get(key attachment.Key) (Record, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	record, found := s.records[key]
	return record, found
}

// All returns the records sorted by number.
func (s *Store) All() []Record {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make([]Record, 0, len(s.records))
	for _, record := range s.records {
		all = append(all, record)
	}
	slices.SortFunc(all, func(a, other Record) int { return cmp.Compare(a.Number, other.Number) })
	return all
}

// Probe reports whether a record could be written now.
func (s *Store) Probe() error { return probe(s.folder) }

func (s *Store) allHeld() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, records := range []map[attachment.Key]Record{s.records, s.pending} {
			for _, record := range records {
				if !yield(record) {
					return
				}
			}
		}
	}
}

func (s *Store) conflict(record Record) *Conflict {
	for other := range s.allHeld() {
		if other.Key == record.Key {
			return &Conflict{"key " + record.Key.String(), other}
		}
		if other.HostInterface == record.HostInterface && record.HostInterface != "" {
			return &Conflict{"host interface " + record.HostInterface, other}
		}
		if shared := sharedAddress(other.Addresses, record.Addresses); shared.IsValid() {
			return &Conflict{"address " + shared.String(), other}
		}
	}
	return nil
}

func sharedAddress(some, others []netip.Addr) netip.Addr {
	for _, address := range some {
		if slices.Contains(others, address) {
			return address
		}
	}
	return netip.Addr{}
}
