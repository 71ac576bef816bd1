package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSummedFilesAreReadWholeOrRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"", "x", "{\"a\":1}\nmore\n"} {
		if err := WriteSummed(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if read, err := ReadSummed(path, 1000); err != nil || string(read) != content {
			t.Errorf("read %q, want %q: %v", read, content, err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		spoilt := append([]byte{}, whole...)
		spoilt[i] ^= 4
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSummed(path, 1000); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d was changed: %v", i, err)
		}
	}
	if err := os.WriteFile(path, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSummed(path, 1000); !errors.Is(err, ErrDamaged) {
		t.Errorf("truncated file: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".new-*")); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestReadRefusesIrregularFiles(t *testing.T) {
	folder := t.TempDir()
	pipe, link, long := filepath.Join(folder, "pipe"), filepath.Join(folder, "link"), filepath.Join(folder, "long")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("/etc/passwd", link), os.WriteFile(long, make([]byte, 11), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, long, folder} {
		if content, err := Read(path, 10); err == nil {
			t.Errorf("%s was read: %q", path, content)
		}
	}
}

func TestAbandonedTemporaryFilesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	old, young, other := filepath.Join(folder, TemporaryPrefix+"old"), filepath.Join(folder, TemporaryPrefix+"young"), filepath.Join(folder, "kept.json")
	for _, path := range []string{old, young, other} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	for _, path := range []string{old, other} {
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveAbandoned(folder, time.Minute); err != nil {
		t.Fatal(err)
	}
	for path, there := range map[string]bool{old: false, young: true, other: true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
}
