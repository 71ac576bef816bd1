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

// mostState in a file: 100 nodes with 1,000 addresses each are about 20 MB.
const mostState = 64 << 20

// disk is where a node's part of the directory outlives the daemon.
type disk struct {
	folder string
	// known as it was last written.
	known []byte
}

func (d *disk) ownPath() string   { return filepath.Join(d.folder, "own.json") }
func (d *disk) knownPath() string { return filepath.Join(d.folder, "known.json") }

// load the ledger of this node; nil where there is none. A damaged file is put aside, told and never used: without what
// this node published it is asked back from the directory, without what it knew nothing is let in until it is read anew.
func (d *disk) load(node string, now time.Time) (restored *ledger.Ledger, warning string, err error) {
	var own ledger.Own
	var known ledger.Known
	ownFault := read(d.ownPath(), &own)
	if ownFault == nil && own.Record == nil {
		ownFault = fmt.Errorf("%w: no record in %s", durable.ErrDamaged, d.ownPath())
	}
	if ownFault == nil && own.Record.Node != node {
		return nil, "", fmt.Errorf("%s is the state of node %s, this is %s: remove it if this machine was renamed",
			d.ownPath(), own.Record.Node, node)
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
				return nil, "", fmt.Errorf("%s is damaged: %w", file.path, err)
			}
			asides = append(asides, fmt.Sprintf("%s was damaged and is put aside as %s", file.path, aside))
		default:
			return nil, "", fmt.Errorf("state of the tenant directory: %w", file.fault)
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
	content, err := durable.ReadSummed(path, mostState)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%w: %s: %w", durable.ErrDamaged, path, err)
	}
	return nil
}

// write what has to be on disk before the record is published: first what is known, since the record says so.
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

// store a record of the ledger, and all that belongs to it. One at a time, so that nothing older comes after.
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
