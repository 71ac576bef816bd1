// Package durable reads and writes small files that others may have tampered with and that must survive a power cut.
package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Write puts the content there whole or not at all, and on disk before it returns. The folder must exist.
func Write(path string, content []byte, mode os.FileMode) (err error) {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

func syncFolder(path string) error {
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
	return Write(path, append([]byte(sum(content)+"\n"), content...), 0o600)
}

// ReadSummed reads what WriteSummed wrote. ErrDamaged: somebody or something else did.
func ReadSummed(path string, most int64) ([]byte, error) {
	text, err := Read(path, most)
	if err != nil {
		return nil, err
	}
	first, content, _ := strings.Cut(string(text), "\n")
	if first != sum([]byte(content)) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	return []byte(content), nil
}

// ErrDamaged is a file that is not what was written.
var ErrDamaged = errors.New("the file is damaged")

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
