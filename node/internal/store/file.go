package store

import (
	"bytes"
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
	mostBytes     = 64 << 10
	damagedFolder = "damaged"
)

// envelope around a record: Sum is SHA-256 over exactly the bytes of Record.
type envelope struct {
	Version int             `json:"version"`
	Sum     string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

func isTemporary(name string) bool { return strings.HasPrefix(name, durable.TemporaryPrefix) }

// fileName holds nothing of what came from outside.
func fileName(key attachment.Key) string {
	sum := sha256.Sum256([]byte(key.Network + "\x00" + key.ContainerID + "\x00" + key.Interface))
	return hex.EncodeToString(sum[:16]) + ".json"
}

func encode(record Record) ([]byte, error) {
	inner, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("the record of %s cannot be written as JSON: %w", record.Key, err)
	}
	outer, err := json.Marshal(envelope{formatVersion, durable.Sum(inner), inner})
	if err != nil {
		return nil, fmt.Errorf("the record of %s cannot be written as JSON: %w", record.Key, err)
	}
	return append(outer, '\n'), nil
}

// steps of a record's file; the other writers of such files have none.
var steps = durable.Steps{
	Written: failpoint.StoreWritten, Synced: failpoint.StoreSynced, Renamed: failpoint.StoreRenamed,
	Unlinked: failpoint.StoreUnlinked,
}

// writeFile leaves either the old file or the new one, whatever happens in between.
func writeFile(folder string, record Record) error {
	content, err := encode(record)
	if err != nil {
		return err
	}
	if err := steps.Write(filepath.Join(folder, fileName(record.Key)), content, 0o600); err != nil {
		return fmt.Errorf("the attachment cannot be stored: %w", err)
	}
	return nil
}

func removeFile(folder string, key attachment.Key) error {
	if err := steps.Remove(filepath.Join(folder, fileName(key))); err != nil {
		return fmt.Errorf("the record of an attachment cannot be removed: %w", err)
	}
	return nil
}

func readFile(path string) (Record, error) {
	content, err := durable.Read(path, mostBytes)
	if err != nil {
		return Record{}, fmt.Errorf("it cannot be read: %w", err)
	}
	var outer envelope
	if err := strictly(content, &outer); err != nil {
		return Record{}, fmt.Errorf("it is not a record: %w", err)
	}
	if outer.Version != formatVersion {
		return Record{}, fmt.Errorf("its version is %d, this program knows %d", outer.Version, formatVersion)
	}
	if durable.Sum(outer.Record) != outer.Sum {
		return Record{}, errors.New("its checksum does not fit its content")
	}
	var record Record
	if err := strictly(outer.Record, &record); err != nil {
		return Record{}, fmt.Errorf("its record cannot be read: %w", err)
	}
	if expected := fileName(record.Key); filepath.Base(path) != expected {
		return Record{}, fmt.Errorf("its record belongs into %s", expected)
	}
	if len(record.Addresses) == 0 || record.Rail == "" || record.HostInterface == "" {
		return Record{}, errors.New("its record lacks addresses, rail or host interface")
	}
	return record, nil
}

func strictly(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("something follows after its end")
	}
	return nil
}

// moveAway keeps a damaged file for whoever looks into it, under a name that no other has.
func moveAway(path string) (string, error) {
	folder := filepath.Join(filepath.Dir(path), damagedFolder)
	stamp := time.Now().UTC().Format("20060102T150405.000000000")
	moved := filepath.Join(folder, stamp+"-"+filepath.Base(path))
	if err := os.Rename(path, moved); err != nil {
		return "", err
	}
	return moved, nil
}

// probe writes as much as a record may take, and takes it away.
func probe(folder string) error {
	temporary, err := os.CreateTemp(folder, durable.TemporaryPrefix+"*")
	if err != nil {
		return fmt.Errorf("the state folder cannot be written: %w", err)
	}
	_, err = temporary.Write(make([]byte, 4<<10))
	if err := errors.Join(err, temporary.Close(), os.Remove(temporary.Name())); err != nil {
		return fmt.Errorf("the state folder cannot be written: %w", err)
	}
	return nil
}
