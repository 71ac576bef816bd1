// Package durable reads and writes small files that others may have tampered with and that must survive a power cut.
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

// TemporaryPrefix begins the names of files that are still being written.
const TemporaryPrefix = ".new-"

// Steps at which a test can have the program die, by their names; an empty one is none.
type Steps struct {
	Written  failpoint.Name // the temporary file is written, not synced
	Synced   failpoint.Name // the temporary file is on disk
	Renamed  failpoint.Name // it has its name; the folder is not synced
	Unlinked failpoint.Name // a file is gone; the folder is not synced
}

// Write puts the content there whole or not at all, and on disk before it returns. The folder must exist.
func Write(path string, content []byte, mode os.FileMode) error {
	return Steps{}.Write(path, content, mode)
}

// Write is Write by these steps. After an error from its last one, the folder's sync, the file may have its name.
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

// Remove a file, on disk too before it returns; one that is not there is fine.
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

// RemoveAbandoned takes away what a writer that died, or a power cut, left half written: temporary files that nobody has
// touched for so long. A writer that is slower than that fails and says so.
func RemoveAbandoned(folder string, untouched time.Duration) error {
	entries, err := os.ReadDir(folder) // not by a pattern: the folder's own name may be read as one
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

// SyncFolder makes names last: a rename alone may be lost with the power.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Read a regular file of at most so many bytes. A link, a pipe or a device is refused: opening one could hang.
func Read(path string, most int64) ([]byte, error) {
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
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return content, nil
}

// WriteSummed writes content with a sum before it, by which ReadSummed knows it whole.
func WriteSummed(path string, content []byte) error {
	return Write(path, append([]byte(Sum(content)+"\n"), content...), 0o600)
}

// ReadSummed reads what WriteSummed wrote. ErrDamaged: somebody or something else did.
func ReadSummed(path string, most int64) ([]byte, error) {
	text, err := Read(path, most)
	if err != nil {
		return nil, err
	}
	first, content, _ := strings.Cut(string(text), "\n")
	if first != Sum([]byte(content)) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	return []byte(content), nil
}

// ErrDamaged is a file that is not what was written.
var ErrDamaged = errors.New("the file is damaged")

// Sum of a content: SHA-256 in hexadecimal.
func Sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
