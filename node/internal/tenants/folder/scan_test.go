package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"railwright/node/internal/tenants"
)

// TestUnmountDuringScanLosesNoRecord moves the folder away during a scan, which must fail or see every record: missing
// ones would count as deleted.
func TestUnmountDuringScanLosesNoRecord(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "shared")
	const nodes = 50
	must(t, os.MkdirAll(base, 0o755))
	must(t, os.WriteFile(filepath.Join(base, policyFile), []byte("{}"), 0o600))
	for number := range nodes {
		record := tenants.Record{Node: fmt.Sprintf("n%02d", number), Instance: "00000001", Generation: 1, Revision: 1}
		must(t, New(base).Publish(t.Context(), &record))
	}
	store := New(base)
	failed := 0
	for round := range 300 {
		looked := make(chan error)
		go func() {
			for range round % 50 { // the folder moves away later each time
				if _, err := os.Lstat(base); err != nil {
					break
				}
			}
			looked <- os.Rename(base, base+".away")
		}()
		snapshot, err := store.scan(true)
		must(t, <-looked)
		if err != nil {
			failed++
		} else if len(snapshot.Records) != nodes {
			t.Errorf("round %d: %d of %d records without an error; unreadable: %v", round, len(snapshot.Records), nodes, snapshot.Unreadable)
		}
		must(t, os.Rename(base+".away", base))
	}
	t.Logf("%d of 300 scans failed", failed)
	if failed == 0 {
		t.Error("folder was never away during a scan")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
