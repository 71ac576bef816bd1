package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
	"railwright/node/internal/failpoint"
)

const (
	formatVersion = 1
	maxBytes      = 64 << 10
	damagedFolder = "damaged"
)

// envelope wraps a record. Sum is the SHA-256 of exactly the bytes of Record.
type envelope struct {
	Version int             `json:"version"`
	Sum     string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

func isTemporary(name string) bool { return strings.HasPrefix(name, durable.TemporaryPrefix) }

// fileName hashes the key, so that no text from outside reaches a path.
func fileName(key attachment.Key) string {
	sum := sha256.Sum256([]byte(key.Network + "\x00" + key.ContainerID + "\x00" + key.Interface))
	return hex.EncodeToString(sum[:16]) + ".json"
}

func encode(record Record) ([]byte, error) {
	inner, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode record of %s: %w", record.Key, err)
	}
	outer, err := json.Marshal(envelope{formatVersion, durable.Sum(inner), inner})
	if err != nil {
		return nil, fmt.Errorf("encode record of %s: %w", record.Key, err)
	}
	return append(outer, '\n'), nil
}

// steps are the failpoints of a record's file. Other writers of durable files have none.
var steps = durable.Steps{
	Written: failpoint.StoreWritten, Synced: failpoint.StoreSynced, Renamed: failpoint.StoreRenamed,
	Unlinked: failpoint.StoreUnlinked,
}

// writeFile writes a record atomically: a crash leaves the old file or the new one.
func writeFile(folder string, record Record) error {
	content, err := encode(record)
	if err != nil {
		return err
	}
	if err := steps.Write(filepath.Join(folder, fileName(record.Key)), content, 0o600); err != nil {
		return fmt.Errorf("store attachment: %w", err)
	}
	return nil
}

func removeFile(folder string, key attachment.Key) error {
	if err := steps.Remove(filepath.Join(folder, fileName(key))); err != nil {
		return fmt.Errorf("remove record of attachment: %w", err)
	}
	return nil
}

// readFile reads a record. It ignores fields of a later version.
func readFile(path string) (Record, error) {
	content, err := durable.Read(path, maxBytes)
	if err != nil {
		return Record{}, fmt.Errorf("read record: %w", err)
	}
	var outer envelope
	if err := json.Unmarshal(content, &outer); err != nil {
		return Record{}, fmt.Errorf("parse record: %w", err)
	}
	if outer.Version != formatVersion {
		return Record{}, fmt.Errorf("record version must be %d, got %d", formatVersion, outer.Version)
	}
	if durable.Sum(outer.Record) != outer.Sum {
		return Record{}, errors.New("checksum mismatch")
	}
	var record Record
	if err := json.Unmarshal(outer.Record, &record); err != nil {
		return Record{}, fmt.Errorf("parse record: %w", err)
	}
	if expected := fileName(record.Key); filepath.Base(path) != expected {
		return Record{}, fmt.Errorf("file name must be %s for this record", expected)
	}
	if len(record.Addresses) == 0 || record.Rail == "" || record.HostInterface == "" && !record.Leaving() {
		return Record{}, errors.New("record must have addresses, a rail and a host interface")
	}
	return record, nil
}

// moveAway keeps a damaged file for inspection, under a unique name.
func moveAway(path string) (string, error) {
	folder := filepath.Join(filepath.Dir(path), damagedFolder)
	stamp := time.Now().UTC().Format("20060102T150405.000000000")
	moved := filepath.Join(folder, stamp+"-"+filepath.Base(path))
	if err := os.Rename(path, moved); err != nil {
		return "", err
	}
	return moved, nil
}

// probe writes and deletes a file as large as a record.
func probe(folder string) error {
	temporary, err := os.CreateTemp(folder, durable.TemporaryPrefix+"*")
	if err != nil {
		return fmt.Errorf("write to state folder: %w", err)
	}
	_, err = temporary.Write(make([]byte, 4<<10))
	if err := errors.Join(err, temporary.Close(), os.Remove(temporary.Name())); err != nil {
		return fmt.Errorf("write to state folder: %w", err)
	}
	return nil
}
