package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"railwright/node/testlab"
)

func TestWatchSeesFilesInAFolderCreatedLater(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	defer cancel()
	folder := filepath.Join(t.TempDir(), "later")
	looks := make(chan bool, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Folders(ctx, []string{folder}, 20*time.Millisecond, func() {
			_, err := os.Stat(filepath.Join(folder, "file"))
			select {
			case looks <- err == nil:
			default:
			}
		})
	}()
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; {
		select {
		case seen = <-looks:
		case <-ctx.Done():
			t.Fatal("the file was not seen")
		}
	}
	cancel()
	<-done
}
