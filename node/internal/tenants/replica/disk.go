package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

func (disk *disk) ownPath() string   { return filepath.Join(disk.folder, "own.json") }
func (disk *disk) knownPath() string { return filepath.Join(disk.folder, "known.json") }

// load the ledger of this node; nil where there is none. A damaged file is put aside, told and never used: without what
// this node published it is asked back from the directory, without what it knew nothing is let in until it is read anew.
func (disk *disk) load(node string, now time.Time) (restored *ledger.Ledger, told string, err error) {
	var own ledger.Own
	var known ledger.Known
	ownFault := read(disk.ownPath(), &own)
	if ownFault == nil && own.Record == nil {
		ownFault = fmt.Errorf("%w: no record in %s", durable.ErrDamaged, disk.ownPath())
	}
	if ownFault == nil && own.Record.Node != node {
		return nil, "", fmt.Errorf("%s is the state of node %s, this is %s: remove it if this machine was renamed",
			disk.ownPath(), own.Record.Node, node)
	}
	knownFault := read(disk.knownPath(), &known)
	for path, fault := range map[string]error{disk.ownPath(): ownFault, disk.knownPath(): knownFault} {
		switch {
		case fault == nil || errors.Is(fault, fs.ErrNotExist):
		case errors.Is(fault, durable.ErrDamaged):
			told = fmt.Sprintf("%s was damaged and is put aside as %s.damaged", path, path)
			if err := os.Rename(path, path+".damaged"); err != nil {
				return nil, "", fmt.Errorf("%s is damaged: %w", path, err)
			}
		default:
			return nil, "", fmt.Errorf("state of the tenant directory: %w", fault)
		}
	}
	if ownFault != nil {
		return nil, told, nil
	}
	if knownFault != nil {
		known = ledger.Known{}
	}
	return ledger.Restore(own, known, now), told, nil
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
func (disk *disk) write(own ledger.Own, known ledger.Known) error {
	content, err := json.Marshal(known)
	if err != nil {
		return err
	}
	if string(content) != string(disk.known) {
		if err := durable.WriteSummed(disk.knownPath(), content); err != nil {
			return err
		}
		disk.known = content
	}
	if content, err = json.Marshal(own); err != nil {
		return err
	}
	return durable.WriteSummed(disk.ownPath(), content)
}

// store a record of the ledger, and all that belongs to it. One at a time, so that nothing older comes after.
func (replica *Replica) store(draw func(ledger *ledger.Ledger, now time.Time) *tenants.Record) (*tenants.Record, error) {
	replica.writing.Lock()
	defer replica.writing.Unlock()
	replica.mutex.Lock()
	record := draw(replica.ledger, time.Now())
	own, known := replica.ledger.Own(record), replica.ledger.Known()
	replica.mutex.Unlock()
	err := replica.disk.write(own, known)
	replica.mutex.Lock()
	replica.diskFault = err
	replica.mutex.Unlock()
	return record, err
}
