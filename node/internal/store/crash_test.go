package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/internal/durable"
	"railwright/node/internal/failpoint"
)

const writerEnvironment = "RAILWRIGHT_TEST_STORE"

// TestWriter is the child process of the test below. It performs the operation named in its environment and is killed
// there.
func TestWriter(t *testing.T) {
	folder, verb := os.Getenv(writerEnvironment), os.Getenv("RAILWRIGHT_TEST_VERB")
	if folder == "" {
		t.Skip("runs only as the child of TestCrashLeavesOldOrNewRecord")
	}
	store := mustOpen(t, folder)
	switch verb {
	case "reserve":
		mustReserve(t, store, 2)
	case "put":
		record, _ := store.Get(sample(1).Key)
		record.Part = []attachment.Part{attachment.Flows}
		if err := store.Put(record); err != nil {
			t.Fatal(err)
		}
	case "remove":
		if err := store.Remove(sample(1).Key); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCrashLeavesOldOrNewRecord(t *testing.T) {
	writer := filepath.Join(t.TempDir(), "writer")
	if output, err := exec.Command("go", "test", "-c", "-tags", "failpoints", "-o", writer, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	writing := []failpoint.Name{failpoint.StoreWritten, failpoint.StoreSynced, failpoint.StoreRenamed}
	steps := map[string][]failpoint.Name{"reserve": writing, "put": writing, "remove": {failpoint.StoreUnlinked}}
	for verb, names := range steps {
		for _, name := range names {
			t.Run(verb+" "+string(name), func(t *testing.T) {
				folder := t.TempDir()
				mustReserve(t, mustOpen(t, folder), 1)
				killAt(t, writer, folder, verb, name)
				all := mustOpen(t, folder).All()
				done := name == failpoint.StoreRenamed || name == failpoint.StoreUnlinked
				want := map[string]map[bool]int{"reserve": {false: 1, true: 2}, "put": {false: 1, true: 1}, "remove": {true: 0}}
				if len(all) != want[verb][done] {
					t.Fatalf("got %d records: %v", len(all), all)
				}
				if verb == "put" && (len(all[0].Part) == 1) != done {
					t.Fatalf("killed at %s, got parts %v", name, all[0].Part)
				}
				if entries, _ := filepath.Glob(filepath.Join(folder, durable.TemporaryPrefix+"*")); len(entries) > 0 {
					t.Fatalf("temporary files left: %v", entries)
				}
			})
		}
	}
}

func killAt(t *testing.T, writer, folder, verb string, name failpoint.Name) {
	t.Helper()
	child := exec.Command(writer, "-test.run", "^TestWriter$")
	child.Env = append(os.Environ(), writerEnvironment+"="+folder, "RAILWRIGHT_TEST_VERB="+verb,
		"RAILWRIGHT_FAILPOINT="+string(name))
	output, err := child.CombinedOutput()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("writer was not killed at %s: %v\n%s", name, err, output)
	}
}
