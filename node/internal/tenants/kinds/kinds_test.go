package kinds

import (
	"log/slog"
	"os"
	"regexp"
	"testing"
)

// TestTheStateOfARenamedMachineIsRemovedByHand does what the message says.
func TestTheStateOfARenamedMachineIsRemovedByHand(t *testing.T) {
	settings := Config{Kind: "folder", Node: "before", StateFolder: t.TempDir(), Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	try := func() error {
		opened, _, err := Open(t.Context(), settings)
		if err == nil {
			opened.Close()
		}
		return err
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	settings.Node = "after"
	found := regexp.MustCompile(`(/\S+) must be the state of node after, got that of before; remove it`).FindStringSubmatch(try().Error())
	if found == nil {
		t.Fatal(try())
	}
	if err := os.Remove(found[1]); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Error(err)
	}
}
