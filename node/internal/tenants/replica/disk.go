package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"railwright/node/internal/durable"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/ledger"
)

// maxState limits a state file: 100 nodes with 1,000 addresses each need about 20 MB.
const maxState = 64 << 20

// disk stores a node's part of the directory over restarts.
type disk struct {
	folder string
	// known is the content last written.
	known []byte
}

func (d *disk) ownPath() string   { return filepath.Join(d.folder, "own.json") }
func (d *disk) knownPath() string { return filepath.Join(d.folder, "known.json") }

// load returns this node's ledger, or nil if there is none. A damaged file is renamed, reported and never used: a lost
// record is read back from the directory, and without the other nodes' state nothing is admitted until it was read
// again.
func (d *disk) load(node string, now time.Time) (restored *ledger.Ledger, warning string, err error) {
	var own ledger.Own
	var known ledger.Known
	ownFault := read(d.ownPath(), &own)
	if ownFault == nil && own.Record == nil {
		ownFault = fmt.Errorf("%w: no record in %s", durable.ErrDamaged, d.ownPath())
	}
	if ownFault == nil && own.Record.Node != node {
		return nil, "", fmt.Errorf("%s must be the state of node %s, got that of %s; remove it if this machine was renamed",
			d.ownPath(), node, own.Record.Node)
	}
	knownFault := read(d.knownPath(), &known)
	var asides []string
	for _, file := range []struct {
		path  string
		fault error
	}{{d.ownPath(), ownFault}, {d.knownPath(), knownFault}} {
		switch {
		case file.fault == nil || errors.Is(file.fault, fs.ErrNotExist):
		case errors.Is(file.fault, durable.ErrDamaged):
			aside := file.path + ".damaged"
			if err := os.Rename(file.path, aside); err != nil {
				return nil, "", fmt.Errorf("rename damaged %s: %w", file.path, err)
			}
			asides = append(asides, fmt.Sprintf("%s was damaged and is renamed to %s", file.path, aside))
		default:
			return nil, "", fmt.Errorf("read state of the tenant directory: %w", file.fault)
		}
	}
	warning = strings.Join(asides, "; ")
	if ownFault != nil {
		return nil, warning, nil
	}
	if knownFault != nil {
		known = ledger.Known{}
	}
	return ledger.Restore(own, known, now), warning, nil
}

func read(path string, into any) error {
	content, err := durable.ReadSummed(path, maxState)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%w: %s: %w", durable.ErrDamaged, path, err)
	}
	return nil
}

// write stores what must be on disk before the record is published: first the knowledge that the record refers to.
func (d *disk) write(own ledger.Own, known ledger.Known) error {
	content, err := json.Marshal(known)
	if err != nil {
		return err
	}
	if string(content) != string(d.known) {
		if err := durable.WriteSummed(d.knownPath(), content); err != nil {
			return err
		}
		d.known = content
	}
	content, err = json.Marshal(own)
	if err != nil {
		return err
	}
	return durable.WriteSummed(d.ownPath(), content)
}

// store stores a record of the ledger with all that belongs to it. Calls are serialized, so that no older state is
// written last.
func (r *Replica) store(draw func(ledger *ledger.Ledger, now time.Time) *tenants.Record) (*tenants.Record, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mutex.Lock()
	record := draw(r.ledger, time.Now())
	own, known := r.ledger.Own(record), r.ledger.Known()
	r.mutex.Unlock()
	err := r.disk.write(own, known)
	r.mutex.Lock()
	r.diskFault = err
	r.mutex.Unlock()
	return record, err
}
