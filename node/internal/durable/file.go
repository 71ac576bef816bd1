// Package durable reads and writes small files that may be tampered with and must survive a power cut.
package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"railwright/node/internal/failpoint"
)

// TemporaryPrefix begins the names of files that are being written.
const TemporaryPrefix = ".new-"

// Steps are the failpoints of a write. An empty name is no failpoint.
type Steps struct {
	Written  failpoint.Name // the temporary file is written but not synced
	Synced   failpoint.Name // the temporary file is on disk
	Renamed  failpoint.Name // the file has its final name; the folder is not synced
	Unlinked failpoint.Name // the file is deleted; the folder is not synced
}

// Write replaces a file atomically and returns once it is on disk. The folder must exist.
func Write(path string, content []byte, mode os.FileMode) error {
	return Steps{}.Write(path, content, mode)
}

// Write is Write with failpoints. If syncing the folder, its last step, fails, the file may already have its final
// name.
func (s Steps) Write(path string, content []byte, mode os.FileMode) (err error) {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, TemporaryPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(s.fill(file, content, mode), file.Close()); err != nil {
		return err
	}
	failpoint.Reach(s.Synced)
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	failpoint.Reach(s.Renamed)
	return SyncFolder(folder)
}

func (s Steps) fill(file *os.File, content []byte, mode os.FileMode) error {
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	failpoint.Reach(s.Written)
	return file.Sync()
}

// Remove deletes a file and returns once that is on disk. It is not an error if there is none.
func (s Steps) Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	failpoint.Reach(s.Unlinked)
	return SyncFolder(filepath.Dir(path))
}

// RemoveAbandoned deletes the temporary files of writers that died, if nobody touched them for the given time. A slower
// writer fails with an error.
func RemoveAbandoned(folder string, untouched time.Duration) error {
	entries, err := os.ReadDir(folder) // no glob: the folder's name could contain a pattern
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), TemporaryPrefix) {
			continue
		}
		status, gone := entry.Info()
		if gone == nil && time.Since(status.ModTime()) >= untouched {
			err = errors.Join(err, Steps{}.Remove(filepath.Join(folder, entry.Name())))
		}
	}
	return err
}

// SyncFolder makes renames in the folder durable: without it, a power cut can undo them.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Read reads a regular file of at most the given size. It refuses links, pipes and devices: opening them could hang.
func Read(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !status.Mode().IsRegular() {
		return nil, fmt.Errorf("%s must be a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s must have at most %d bytes", path, limit)
	}
	return content, nil
}

// WriteSummed writes content after a checksum that ReadSummed verifies.
func WriteSummed(path string, content []byte) error {
	return Write(path, append([]byte(Sum(content)+"\n"), content...), 0o600)
}

// ReadSummed reads a file of WriteSummed. It returns ErrDamaged if the checksum does not match.
func ReadSummed(path string, limit int64) ([]byte, error) {
	text, err := Read(path, limit)
	if err != nil {
		return nil, err
	}
	first, content, _ := strings.Cut(string(text), "\n")
	if first != Sum([]byte(content)) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	return []byte(content), nil
}

// ErrDamaged is returned for a file whose checksum does not match.
var ErrDamaged = errors.New("file is damaged")

// Sum returns the SHA-256 of the content in hexadecimal.
func Sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
