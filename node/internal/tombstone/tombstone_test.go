package tombstone

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/internal/attachment"
)

func stone() Tombstone {
	return Tombstone{
		Key:     attachment.Key{Network: "sriov_pf1_vf", ContainerID: "c1", Interface: "net1"},
		Parts:   []attachment.Part{attachment.Flows, attachment.Routes},
		Written: time.Date(2026, 11, 22, 7, 0, 0, 5, time.UTC),
	}
}

func listNames(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := List(folder)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestWriteThenRead(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state", "tombstones")
	if paths := listNames(t, folder); paths != nil {
		t.Fatalf("%v without a folder", paths)
	}
	if err := Write(folder, stone()); err != nil {
		t.Fatal(err)
	}
	paths := listNames(t, folder)
	if len(paths) != 1 || filepath.Base(paths[0]) != stone().Name() {
		t.Fatalf("%v", paths)
	}
	read, err := Read(paths[0])
	if err != nil || !reflect.DeepEqual(read, stone()) {
		t.Errorf("%+v %v", read, err)
	}
	for path, want := range map[string]os.FileMode{folder: 0o700, paths[0]: 0o600} {
		if found, err := os.Stat(path); err != nil || found.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, found.Mode(), err)
		}
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("extra files: %v", entries)
	}
}

func TestRepeatedDelIsOneFileAndOtherPartsAreAnother(t *testing.T) {
	folder := t.TempDir()
	later, swapped, flows := stone(), stone(), stone()
	later.Written = later.Written.Add(time.Hour)
	swapped.Parts = []attachment.Part{attachment.Routes, attachment.Flows}
	flows.Parts = flows.Parts[:1]
	for _, tombstone := range []Tombstone{stone(), swapped, later} {
		if err := Write(folder, tombstone); err != nil {
			t.Fatal(err)
		}
	}
	if read, err := Read(listNames(t, folder)[0]); err != nil || !read.Written.Equal(later.Written) {
		t.Errorf("%+v %v", read, err)
	}
	if err := Write(folder, flows); err != nil {
		t.Fatal(err)
	}
	if paths := listNames(t, folder); len(paths) != 2 {
		t.Errorf("%v", paths)
	}
}

func TestInvalidTombstonesAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Tombstone){
		"network":        func(stone *Tombstone) { stone.Key.Network = "../../etc" },
		"container id":   func(stone *Tombstone) { stone.Key.ContainerID = "" },
		"got 256":        func(stone *Tombstone) { stone.Key.ContainerID = strings.Repeat("c", 256) },
		"interface name": func(stone *Tombstone) { stone.Key.Interface = "net1\n" },
		"1 to 15":        func(stone *Tombstone) { stone.Key.Interface = ".." },
		"got 0":          func(stone *Tombstone) { stone.Parts = nil },
		`got "all"`:      func(stone *Tombstone) { stone.Parts[0] = "all" },
		"must be a time": func(stone *Tombstone) { stone.Written = time.Time{} },
	} {
		wrong := stone()
		change(&wrong)
		folder := t.TempDir()
		if err := Write(folder, wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if paths := listNames(t, folder); paths != nil {
			t.Errorf("%s: wrote %v", want, paths)
		}
	}
}

func TestErrorsOfDamagedFilesNameTheFile(t *testing.T) {
	folder := t.TempDir()
	good := `{"key":{"network":"n","container_id":"c","interface":"i"},"parts":["flows"],"written":"2026-11-22T07:00:00Z"}`
	path := filepath.Join(folder, "x.json")
	for text, want := range map[string]string{
		good:      "",
		"":        "unexpected end",
		good[:40]: "unexpected end",
		strings.Replace(good, "{", `{"later":{"of":1},`, 1):                "",
		strings.Replace(good, "parts", "p", 1):                             "got 0",
		strings.Replace(good, `"n"`, `"n;"`, 1):                            "network",
		strings.Replace(good, `["flows"]`, `["flows","flows","flows"]`, 1): "got 3",
		good + strings.Repeat(" ", 64<<10):                                 "at most 65536 bytes",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if (want == "") != (err == nil) || !strings.Contains(message, want) || err != nil && !strings.Contains(message, path) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	_ = os.Remove(path)
	if err := os.Symlink("/etc/hostname", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("link: %v", err)
	}
	_ = os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("pipe was read")
	}
}

func TestFolderWritableByOthersIsRefused(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "tombstones")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, stone()); err == nil || !strings.Contains(err.Error(), "writable only by its owner") {
		t.Errorf("%v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, stone()); err == nil {
		t.Error("link was followed")
	}
}

func TestFullDiskIsAnErrorAndKeepsTheOldTombstone(t *testing.T) {
	folder := t.TempDir()
	if output, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "tmpfs", folder).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small disk: %v: %s", err, output)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, 0) })
	if err := Write(folder, stone()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "other"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	later := stone()
	later.Written = later.Written.Add(time.Hour)
	if err := Write(folder, later); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("full disk: %v", err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 2 {
		t.Errorf("files left: %v", entries)
	}
	if read, err := Read(listNames(t, folder)[0]); err != nil || !reflect.DeepEqual(read, stone()) {
		t.Errorf("%+v %v", read, err)
	}
}
