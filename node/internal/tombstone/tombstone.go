// Package tombstone keeps DELs that a plugin could not deliver because railwrightd was not running. railwrightd
// executes them when it starts. Otherwise a pod would hang in Terminating, or its routes would stay announced.
package tombstone

import (
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

// DefaultFolder is on disk, next to the daemon's state: tombstones must survive a reboot.
const DefaultFolder = "/var/lib/railwright/tombstones"

const (
	maxBytes = 64 << 10
	suffix   = ".json"
)

// Tombstone is a pending DEL.
type Tombstone struct {
	Key   attachment.Key    `json:"key"`
	Parts []attachment.Part `json:"parts"`
	// Written is the time of the DEL. A later attachment with the same key is a different one.
	Written time.Time `json:"written"`
}

// Check validates a tombstone read from a file.
func (t Tombstone) Check() error {
	if err := t.Key.Check(); err != nil {
		return err
	}
	if len(t.Parts) == 0 || len(t.Parts) > 2 {
		return fmt.Errorf("parts must have 1 or 2 entries, got %d", len(t.Parts))
	}
	for _, part := range t.Parts {
		if part != attachment.Flows && part != attachment.Routes {
			return fmt.Errorf("part must be %q or %q, got %.40q", attachment.Flows, attachment.Routes, part)
		}
	}
	if t.Written.IsZero() {
		return errors.New("written must be a time, got none")
	}
	return nil
}

// Name returns the file's name, a hash of key and parts: a repeated DEL makes one file, and no text of the key reaches
// a path.
func (t Tombstone) Name() string {
	parts := slices.Sorted(slices.Values(t.Parts))
	named, _ := json.Marshal([]any{t.Key, parts}) // strings only: cannot fail
	sum := sha256.Sum256(named)
	return hex.EncodeToString(sum[:16]) + suffix
}

// Write stores a tombstone in the folder (created with 0700 if missing) and returns once it is on disk. Readers never
// see a partial file: temporary files begin with a dot.
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

// Read reads a tombstone. It ignores fields of a later version's plugin. Its errors name the file.
func Read(path string) (Tombstone, error) {
	text, err := durable.Read(path, maxBytes)
	if err != nil {
		return Tombstone{}, fmt.Errorf("tombstone: %w", err)
	}
	var stone Tombstone
	if err := json.Unmarshal(text, &stone); err != nil {
		return Tombstone{}, fmt.Errorf("tombstone %s: %w", path, err)
	}
	if err := stone.Check(); err != nil {
		return Tombstone{}, fmt.Errorf("tombstone %s: %w", path, err)
	}
	return stone, nil
}

// List returns the paths of the folder's tombstones, or none if there is no folder.
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

// openFolder creates the folder if it is missing. It refuses a folder that other users can write to, because its
// tombstones are executed.
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
		return fmt.Errorf("tombstone folder %s must be writable only by its owner, user %d, got mode %s and owner %d",
			folder, os.Geteuid(), found.Mode(), owner)
	}
	return nil
}
