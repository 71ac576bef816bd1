package directory

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"railwright/node/internal/durable"
	"railwright/node/internal/tenants"
)

// journal keeps a node's state over restarts: a line for each change, with its checksum, and now and then a new file with
// what is left of them. A line that was not written whole is the last one, and its change did not happen.
type journal struct {
	path string

	mutex sync.Mutex
	file  *os.File
	// lines counts the lines in the file, and alive those that a new file would have.
	lines int
	kept  entries
	fault error
}

// entry is a line. One of its fields is set; without a value the named thing is gone. Unknown fields are ignored.
type entry struct {
	Self  *self  `json:"self,omitempty"`
	Epoch string `json:"epoch,omitempty"`

	Address *netip.Addr `json:"address,omitempty"`
	Own     *own        `json:"own,omitempty"`

	Tenant  string   `json:"tenant,omitempty"`
	Floor   uint64   `json:"floor,omitempty"`
	Node    string   `json:"node,omitempty"`
	Members *members `json:"members,omitempty"`
	// Left means that this node no longer goes by the tenant.
	Left bool `json:"left,omitempty"`

	Policy    *tenants.Policy    `json:"policy,omitempty"`
	Namespace *tenants.Namespace `json:"namespace,omitempty"`
}

// self identifies the state folder.
type self struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
}

// entries are what a journal's lines amount to.
type entries struct {
	self self
	// epochs are those that this node has entered; the last one is the current.
	epochs []string
	owns   map[netip.Addr]own
	spaces map[string]*space
	policy *tenants.Policy
	named  map[string]tenants.Namespace
}

func newEntries() entries {
	return entries{owns: map[netip.Addr]own{}, spaces: map[string]*space{}, named: map[string]tenants.Namespace{}}
}

func (e *entries) apply(line entry) {
	switch {
	case line.Self != nil:
		e.self = *line.Self
	case line.Address != nil && line.Own == nil:
		delete(e.owns, *line.Address)
	case line.Address != nil:
		e.owns[*line.Address] = *line.Own
	case line.Policy != nil:
		e.policy = line.Policy
	case line.Namespace != nil:
		e.named[line.Namespace.Name] = *line.Namespace
	case line.Left:
		delete(e.spaces, line.Tenant)
	case line.Tenant != "":
		held := e.spaces[line.Tenant]
		if held == nil {
			held = &space{objects: map[string]members{}}
			e.spaces[line.Tenant] = held
		}
		switch {
		case line.Node == "":
			held.floor = line.Floor
		case line.Members == nil:
			delete(held.objects, line.Node)
		default:
			held.objects[line.Node] = *line.Members
		}
	case line.Epoch != "":
		e.epochs = append(e.epochs, line.Epoch)
		for _, held := range e.spaces {
			held.floor = 0
		}
	}
}

// all calls visit with the lines of a new file.
func (e *entries) all(visit func(entry)) {
	visit(entry{Self: &e.self})
	for _, epoch := range e.epochs {
		visit(entry{Epoch: epoch})
	}
	if e.policy != nil {
		visit(entry{Policy: e.policy})
	}
	for _, named := range e.named {
		visit(entry{Namespace: &named})
	}
	for address, held := range e.owns {
		visit(entry{Address: &address, Own: &held})
	}
	for tenant, held := range e.spaces {
		visit(entry{Tenant: tenant, Floor: held.floor})
		for node, published := range held.objects {
			visit(entry{Tenant: tenant, Node: node, Members: &published})
		}
	}
}

// openJournal reads the journal in a folder, or begins one. A damaged file is renamed, reported and never used: the claims
// in it belong to an earlier instance of this machine then.
func openJournal(folder, node string) (kept *journal, warning string, err error) {
	kept = &journal{path: filepath.Join(folder, "journal"), kept: newEntries()}
	err = kept.read()
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, durable.ErrDamaged):
		aside := kept.path + ".damaged"
		if err := os.Rename(kept.path, aside); err != nil {
			return nil, "", fmt.Errorf("rename damaged %s: %w", kept.path, err)
		}
		warning = fmt.Sprintf("%v; it is renamed to %s", err, aside)
		kept.kept = newEntries()
	default:
		return nil, "", fmt.Errorf("read state of the tenant directory: %w", err)
	}
	if held := kept.kept.self; held.Instance != "" && held.Node != node {
		return nil, "", fmt.Errorf("%s must be the state of node %s, got that of %s; remove it if this machine was renamed", kept.path, node, held.Node)
	}
	if kept.kept.self.Instance == "" {
		kept.kept.self = self{node, tenants.NewID()}
	}
	return kept, warning, kept.rewrite()
}

func (j *journal) read() error {
	file, err := os.Open(j.path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of a line was never acknowledged
		}
		if err != nil {
			return err
		}
		sum, content, _ := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(" "))
		var line entry
		if want, err := strconv.ParseUint(string(sum), 16, 32); err != nil || crc32.ChecksumIEEE(content) != uint32(want) {
			return fmt.Errorf("%w: line %d of %s", durable.ErrDamaged, number, j.path)
		}
		if err := json.Unmarshal(content, &line); err != nil {
			return fmt.Errorf("%w: line %d of %s: %w", durable.ErrDamaged, number, j.path, err)
		}
		j.kept.apply(line)
	}
}

func appendLine(to []byte, line entry) []byte {
	content, err := json.Marshal(line)
	if err != nil {
		panic(err) // entries have only texts, numbers and addresses
	}
	to = fmt.Appendf(to, "%08x ", crc32.ChecksumIEEE(content))
	return append(append(to, content...), '\n')
}

// rewrite writes a new file.
func (j *journal) rewrite() error {
	var text []byte
	j.lines = 0
	j.kept.all(func(line entry) {
		text = appendLine(text, line)
		j.lines++
	})
	if err := durable.Write(j.path, text, 0o600); err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file = file
	return nil
}

// alive is the number of lines that a new file would have.
func (j *journal) alive() (count int) {
	for _, held := range j.kept.spaces {
		count += 1 + len(held.objects)
	}
	return count + len(j.kept.owns) + len(j.kept.named) + len(j.kept.epochs) + 2
}

// write writes lines and returns once they are on disk.
func (j *journal) write(lines ...entry) error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.writeLocked(lines)
}

func (j *journal) writeLocked(lines []entry) (err error) {
	if len(lines) == 0 {
		return nil
	}
	defer func() { j.fault = err }()
	var text []byte
	for _, line := range lines {
		text = appendLine(text, line)
		j.kept.apply(line)
	}
	j.lines += len(lines)
	if j.fault != nil || j.lines > 1000 && j.lines > 4*j.alive() {
		return j.rewrite() // after a failure the file may end in a part of a line
	}
	if _, err := j.file.Write(text); err != nil {
		return err
	}
	return j.file.Sync()
}

// writeLists writes what differs from the disk in lists that were read, with further lines.
func (j *journal) writeLists(name, epoch string, lists map[string]tenants.List, more ...entry) error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	var lines []entry
	for tenant, list := range lists {
		held := j.kept.spaces[tenant]
		if held == nil {
			held = &space{}
		}
		if list.Version < held.floor {
			continue
		}
		there := map[string]bool{}
		for _, object := range list.Objects {
			there[object.Name] = true
			if object.Name == name || held.objects[object.Name].Version == object.Version {
				continue
			}
			if read := decode(object); read.fault != "" || read.Epoch == epoch {
				lines = append(lines, entry{Tenant: tenant, Node: object.Name, Members: &read})
			}
		}
		for node, known := range held.objects {
			if !there[node] && known.Epoch == epoch {
				lines = append(lines, entry{Tenant: tenant, Node: node})
			}
		}
		lines = append(lines, entry{Tenant: tenant, Floor: list.Version})
	}
	return j.writeLocked(append(lines, more...))
}

// settle forgets what nodes published in other epochs. The disk may have objects that this node has heard the end of.
func (j *journal) settle(epoch string) error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	var lines []entry
	for tenant, held := range j.kept.spaces {
		for node, known := range held.objects {
			if known.Epoch != epoch {
				lines = append(lines, entry{Tenant: tenant, Node: node})
			}
		}
	}
	return j.writeLocked(lines)
}

// forget forgets the tenants that this node no longer goes by. It does not wait for the disk.
func (j *journal) forget(scope map[string]bool) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for tenant := range j.kept.spaces {
		if !scope[tenant] {
			line := entry{Tenant: tenant, Left: true}
			j.kept.apply(line)
			if _, err := j.file.Write(appendLine(nil, line)); err != nil {
				j.fault = err
			}
			j.lines++
		}
	}
}

func (j *journal) close() {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	_ = j.file.Close()
}

// failed returns the error of the last write, or nil.
func (j *journal) failed() error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.fault
}
