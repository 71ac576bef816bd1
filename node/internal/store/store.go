// Package store keeps the desired state of a node on its disk: one file for each attachment, written before anything of
// it is programmed, so that no crash can leave a flow or a route that nobody owns.
//
// A file has its final name only once all of it is on disk, and its content carries a checksum. A file that cannot be
// trusted is moved to `damaged/` and told; it is neither deleted nor believed.
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

// Record is what a file holds.
type Record struct {
	attachment.Attachment
	// Boot of the kernel that the attachment was made under: no network namespace outlives it.
	Boot string `json:"boot"`
}

// Leaving says that every part was given up: what is left is to undo it.
func (r Record) Leaving() bool { return len(r.Part) == 0 }

// Damaged file that was found at Open.
type Damaged struct {
	// MovedTo is where it can be looked at.
	MovedTo string
	Why     error
}

// Conflict is a record that cannot be because of another one.
type Conflict struct {
	What   string
	Holder Record
}

func (c *Conflict) Error() string {
	pod := c.Holder.Pod
	return fmt.Sprintf("%s is held by %s of pod %s/%s", c.What, c.Holder.Key.Interface, pod.Namespace,
		pod.Name)
}

// ErrNumbers is given where a node holds as many attachments as there are numbers for them.
var ErrNumbers = errors.New("this node holds 65535 attachments, the most that flows can be told apart by")

// Store is safe for concurrent use; whoever writes one key does so alone.
type Store struct {
	folder string

	mutex   sync.Mutex
	records map[attachment.Key]Record
	numbers numbers
	// pending are records reserved here whose file is not written yet: they hold their number and addresses, but are
	// not seen by All.
	pending map[attachment.Key]Record
}

// Open the folder, made (0700) where it is not there, and read what it holds.
func Open(folder string) (*Store, []Damaged, error) {
	if err := os.MkdirAll(filepath.Join(folder, damagedFolder), 0o700); err != nil {
		return nil, nil, fmt.Errorf("the state folder cannot be made: %w", err)
	}
	store := &Store{folder: folder, records: map[attachment.Key]Record{}, pending: map[attachment.Key]Record{}}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("the state folder cannot be read: %w", err)
	}
	var damaged []Damaged
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		switch {
		case entry.IsDir():
		case isTemporary(entry.Name()):
			// A write that a crash cut off: its attachment was never answered for.
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("a half-written file cannot be removed from the state folder: %w", err)
			}
		default:
			if cause := store.load(path); cause != nil {
				moved, err := moveAway(path)
				if err != nil {
					return nil, nil, fmt.Errorf("%s is damaged (%w) and cannot be moved away: %w", path, cause, err)
				}
				damaged = append(damaged, Damaged{moved, cause})
			}
		}
	}
	if err := durable.SyncFolder(folder); err != nil {
		return nil, nil, fmt.Errorf("the state folder cannot be synced to disk: %w", err)
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
		return fmt.Errorf("its number %d is another attachment's", record.Number)
	}
	s.records[record.Key] = record
	return nil
}

// Reserve takes in a new record, gives it a number and writes it. admit may refuse it in view of all the others, those
// that are just being written included. A *Conflict where its key, an address or the host's interface is taken.
func (s *Store) Reserve(record Record, admit func(others iter.Seq[Record]) error) (Record, error) {
	record, err := s.hold(record, admit)
	if err != nil {
		return Record{}, err
	}
	err = writeFile(s.folder, record)
	if err != nil {
		// It may be there under its name all the same, where only the folder's sync failed.
		err = errors.Join(err, removeFile(s.folder, record.Key))
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.pending, record.Key)
	if err != nil {
		s.numbers.give(record.Number)
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

// Put writes a record anew that is there; its number, addresses and host interface stay what they are. After an error
// the old one holds, in memory and on disk.
func (s *Store) Put(record Record) error {
	if _, found := s.Get(record.Key); !found {
		return fmt.Errorf("there is no record of %s", record.Key)
	}
	if err := writeFile(s.folder, record); err != nil {
		return err
	}
	s.Remember(record)
	return nil
}

// Remember a record in memory alone: for a full disk, where what leaves must still be undone.
func (s *Store) Remember(record Record) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, found := s.records[record.Key]; found {
		s.records[record.Key] = record
	}
}

// Remove the record and its file; one that is not there is fine.
func (s *Store) Remove(key attachment.Key) error {
	if err := removeFile(s.folder, key); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if record, found := s.records[key]; found {
		delete(s.records, key)
		s.numbers.give(record.Number)
	}
	return nil
}

// Get the record of the key.
func (s *Store) Get(key attachment.Key) (Record, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	record, found := s.records[key]
	return record, found
}

// All records, sorted by number.
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

// Probe says whether a record could be written now.
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
			return &Conflict{"the key " + record.Key.String(), other}
		}
		if other.HostInterface == record.HostInterface {
			return &Conflict{"the host's interface " + record.HostInterface, other}
		}
		if shared := sharedAddress(other.Addresses, record.Addresses); shared.IsValid() {
			return &Conflict{"the address " + shared.String(), other}
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
