// Package tombstone keeps the DELs that a plugin could not deliver, because railwrightd was away, until it is back and
// does them. Without it a pod would hang in Terminating, or its routes would stay announced.
package tombstone

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
)

// DefaultFolder is on a disk, beside the daemon's state: a reboot must not lose it.
const DefaultFolder = "/var/lib/railwright/tombstones"

const (
	mostBytes = 64 << 10
	suffix    = ".json"
)

// Tombstone is one DEL to be done.
type Tombstone struct {
	Key   attachment.Key    `json:"key"`
	Parts []attachment.Part `json:"parts"`
	// Written is when the DEL came. An attachment of the same key that was added later is another one.
	Written time.Time `json:"written"`
}

// Check says what is wrong with one from a file.
func (t Tombstone) Check() error {
	if err := t.Key.Check(); err != nil {
		return err
	}
	if len(t.Parts) == 0 || len(t.Parts) > 2 {
		return fmt.Errorf("%d parts, not 1 or 2", len(t.Parts))
	}
	for _, part := range t.Parts {
		if part != attachment.Flows && part != attachment.Routes {
			return fmt.Errorf("part %.40q is neither %q nor %q", part, attachment.Flows, attachment.Routes)
		}
	}
	if t.Written.IsZero() {
		return errors.New("no time in written")
	}
	return nil
}

// Name of its file. The same key and parts have the same name, so that a DEL that is repeated makes one file; nothing of
// the key itself gets into a path.
func (t Tombstone) Name() string {
	parts := slices.Sorted(slices.Values(t.Parts))
	named, _ := json.Marshal([]any{t.Key, parts}) // strings only: cannot fail
	sum := sha256.Sum256(named)
	return hex.EncodeToString(sum[:16]) + suffix
}

// Write puts it into the folder (0700, made where it is missing), on disk when it returns. Readers see all of it or
// nothing: temporary files begin with a dot.
func Write(folder string, stone Tombstone) error {
	if err := stone.Check(); err != nil {
		return fmt.Errorf("tombstone: %w", err)
	}
	if err := openFolder(folder); err != nil {
		return err
	}
	text, err := json.Marshal(stone)
	if err != nil {
		return fmt.Errorf("tombstone: %w", err)
	}
	if err := durable.Write(filepath.Join(folder, stone.Name()), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("tombstone: %w", err)
	}
	return nil
}

// Read one. A file that is too large, not ours or not to be understood is an error that names it.
func Read(path string) (Tombstone, error) {
	text, err := durable.Read(path, mostBytes)
	if err != nil {
		return Tombstone{}, fmt.Errorf("tombstone: %w", err)
	}
	var stone Tombstone
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&stone); err != nil {
		return Tombstone{}, fmt.Errorf("tombstone %s: %w", path, err)
	}
	if err := stone.Check(); err != nil {
		return Tombstone{}, fmt.Errorf("tombstone %s: %w", path, err)
	}
	return stone, nil
}

// List the folder's tombstones by path; none where there is no folder.
func List(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tombstones: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") && strings.HasSuffix(entry.Name(), suffix) {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	return paths, nil
}

// openFolder makes it where it is missing, and refuses one that others may write to: what lies in it is undone.
func openFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("tombstone folder: %w", err)
	}
	found, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("tombstone folder: %w", err)
	}
	owner := found.Sys().(*syscall.Stat_t).Uid
	if !found.IsDir() || owner != uint32(os.Geteuid()) || found.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("tombstone folder %s is %s of user %d: it must be a folder that user %d alone writes to",
			folder, found.Mode(), owner, os.Geteuid())
	}
	return nil
}
