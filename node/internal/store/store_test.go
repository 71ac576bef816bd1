package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
)

// sample returns record i. No two samples share a key, an address or an interface.
func sample(i int) Record {
	address := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	return Record{
		Attachment: attachment.Attachment{
			Key:  attachment.Key{Network: "rail0", ContainerID: fmt.Sprintf("c%d", i), Interface: "net1"},
			Pod:  attachment.Pod{Namespace: "tenant-a", Name: fmt.Sprintf("pod-%d", i), UID: "u"},
			Part: []attachment.Part{attachment.Flows, attachment.Routes}, Netns: "/run/netns/x", NetnsInode: 7,
			Rail: "rail0", Tenant: "ns:tenant-a", HostInterface: fmt.Sprintf("veth%d", i),
			MAC: attachment.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, Addresses: []netip.Addr{address},
		},
		Boot: "boot-1",
	}
}

func mustOpen(t *testing.T, folder string) *Store {
	t.Helper()
	store, damaged, err := Open(folder)
	if err != nil || len(damaged) > 0 {
		t.Fatalf("open: %v, damaged %v", err, damaged)
	}
	return store
}

func mustReserve(t *testing.T, store *Store, i int) Record {
	t.Helper()
	record, err := store.Reserve(sample(i), nil)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestRecordsSurviveARestart(t *testing.T) {
	folder := t.TempDir()
	store := mustOpen(t, folder)
	kept, gone := mustReserve(t, store, 1), mustReserve(t, store, 2)
	kept.Part = []attachment.Part{attachment.Flows}
	if err := errors.Join(store.Put(kept), store.Remove(gone.Key), store.Remove(gone.Key)); err != nil {
		t.Fatal(err)
	}
	all := mustOpen(t, folder).All()
	if len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(kept) {
		t.Fatalf("stored %v, got %v", kept, all)
	}
}

// TestALaterVersionsRecordIsRead checks that the version before keeps a node's pods after a roll-back.
func TestALaterVersionsRecordIsRead(t *testing.T) {
	folder := t.TempDir()
	record := mustReserve(t, mustOpen(t, folder), 1)
	inner, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	inner = append([]byte(`{"later":{"of":"the next version"},`), inner[1:]...)
	outer, err := json.Marshal(map[string]any{"version": formatVersion, "sha256": durable.Sum(inner), "record": json.RawMessage(inner), "later": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, fileName(record.Key)), outer, 0o600); err != nil {
		t.Fatal(err)
	}
	if all := mustOpen(t, folder).All(); len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(record) {
		t.Errorf("stored %v, got %v", record, all)
	}
}

func TestKeysAddressesAndInterfacesAreUnique(t *testing.T) {
	store := mustOpen(t, t.TempDir())
	mustReserve(t, store, 1)
	for name, change := range map[string]func(*Record){
		"key rail0/c1/net1":          func(record *Record) { record.Key = sample(1).Key },
		"address 10.1.0.1":           func(record *Record) { record.Addresses = sample(1).Addresses },
		"host interface veth1":       func(record *Record) { record.HostInterface = "veth1" },
		"no conflict: all different": func(*Record) {},
	} {
		record := sample(2)
		change(&record)
		_, err := store.Reserve(record, nil)
		var conflict *Conflict
		if errors.As(err, &conflict) {
			if conflict.Resource != name || conflict.Holder.Key != sample(1).Key {
				t.Errorf("%s: got %q of %s", name, conflict.Resource, conflict.Holder.Key)
			}
		} else if name != "no conflict: all different" || err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if err == nil {
			if err := store.Remove(record.Key); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAdmissionSeesPendingRecords(t *testing.T) {
	store := mustOpen(t, t.TempDir())
	full := errors.New("full")
	atMost := func(others iter.Seq[Record]) error {
		count := 0
		for range others {
			count++
		}
		if count >= 10 {
			return full
		}
		return nil
	}
	var group sync.WaitGroup
	refused := make(chan error, 50)
	for i := range 50 {
		group.Go(func() {
			if _, err := store.Reserve(sample(i), atMost); err != nil {
				refused <- err
			}
		})
	}
	group.Wait()
	if len(store.All()) != 10 || len(refused) != 40 || !errors.Is(<-refused, full) {
		t.Fatalf("%d stored, %d refused; want 10 of 50 admitted", len(store.All()), len(refused))
	}
	seen := map[uint16]bool{}
	for _, record := range store.All() {
		if seen[record.Number] || record.Number == 0 {
			t.Fatalf("number %d is zero or a duplicate", record.Number)
		}
		seen[record.Number] = true
	}
}

func TestReleasedNumbersAreReusedLast(t *testing.T) {
	var numbers numbers
	first, _ := numbers.next()
	numbers.release(first)
	second, _ := numbers.next()
	if first == second {
		t.Fatalf("number %d was reused at once", first)
	}
	for range 65534 {
		if _, found := numbers.next(); !found {
			t.Fatal("numbers ran out early")
		}
	}
	if number, found := numbers.next(); found {
		t.Fatalf("got number %d, want none: all are in use", number)
	}
	numbers.release(777)
	if number, found := numbers.next(); !found || number != 777 {
		t.Fatalf("want the only free number 777, got %d %v", number, found)
	}
}

func TestDamagedFilesAreMovedAwayAndReported(t *testing.T) {
	folder := t.TempDir()
	store := mustOpen(t, folder)
	good := mustReserve(t, store, 1)
	twin := good
	twin.Key.ContainerID = "other"
	for name, content := range map[string][]byte{
		"empty.json":            {},
		"text.json":             []byte("no JSON at all"),
		"old.json":              []byte(`{"version":9,"sha256":"","record":{}}`),
		"long.json":             make([]byte, maxBytes+1),
		"stranger":              []byte("{}"),
		fileName(twin.Key):      mustEncode(t, twin),
		fileName(sample(3).Key): flipBit(t, sample(3)),
		"wrong-name.json":       mustEncode(t, sample(4)),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "link.json")); err != nil {
		t.Fatal(err)
	}
	again, damaged, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(damaged) != 9 {
		t.Errorf("want 9 damaged files, got %d: %v", len(damaged), damaged)
	}
	for _, file := range damaged {
		if _, err := os.Lstat(file.MovedTo); err != nil {
			t.Errorf("%v was not kept: %v", file, err)
		}
	}
	// File names decide which twin is read first; the other is damaged.
	if all := again.All(); len(all) != 1 || all[0].Number != good.Number {
		t.Errorf("want one good record, got %v", all)
	}
	mustOpen(t, folder)
}

func mustEncode(t *testing.T, record Record) []byte {
	t.Helper()
	if record.Number == 0 {
		record.Number = 99
	}
	content, err := encode(record)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// flipBit returns an encoded record with one bit changed.
func flipBit(t *testing.T, record Record) []byte {
	content := mustEncode(t, record)
	content[len(content)/2] ^= 1
	return content
}

func TestFullDiskIsAnErrorAndChangesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	store := mustOpen(t, folder)
	held := mustReserve(t, store, 1)
	filler := filepath.Join(folder, damagedFolder, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("file system should be full: %v", err)
	}
	changed := held
	changed.Part = nil
	_, reserved := store.Reserve(sample(2), nil)
	for name, err := range map[string]error{"reserve": reserved, "put": store.Put(changed), "probe": store.Probe()} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	if store.numbers.count != 1 {
		t.Errorf("%d numbers in use, want 1", store.numbers.count)
	}
	if got, _ := store.Get(held.Key); got.Leaving() || len(store.All()) != 1 {
		t.Errorf("memory changed but the disk did not: %v", store.All())
	}
	if all := mustOpen(t, folder).All(); len(all) != 1 || all[0].Leaving() {
		t.Errorf("disk has %v, want %v", all, held)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := store.Probe(); err != nil {
		t.Errorf("probe with free space: %v", err)
	}
	if record := mustReserve(t, store, 2); record.Number == held.Number {
		t.Errorf("number %d was allocated twice", record.Number)
	}
}
