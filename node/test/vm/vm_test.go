//go:build vm

package vm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"railwright/node/internal/failpoint"
)

// TestPodsWithVFs: every data flow is in hardware, RoCE goes from pod to pod over two rails, and what a flow that is not
// cached costs. One part alone: go test -tags vm -run PodsWithVFs ./test/vm -args offload|rdma|figures
func TestPodsWithVFs(t *testing.T) { run(t, "TestVFs", flag.Arg(0), lies()...) }

// TestAPowerCutInTheMiddleOfAddLeavesNothing cuts the machine's power at each step of ADD; with -short at three of them:
// before there is a record on the disk, with flows, and with all done. Each boot sees what the one before left on the disk,
// and comes to the next cut.
func TestAPowerCutInTheMiddleOfAddLeavesNothing(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-F", disk, "64M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, output)
	}
	steps := failpoint.AddSteps()
	if testing.Short() {
		steps = []failpoint.Name{failpoint.StoreRenamed, failpoint.AddFlows, failpoint.AddAnswered}
	}
	for number, step := range append(steps, "none") {
		passed := t.Run(fmt.Sprintf("%02d-%s", number+1, step), func(t *testing.T) {
			seen := boot(t, "TestPowerCut", disk, string(step)).follow()
			if step == "none" {
				if seen.status != 0 {
					t.Fatalf("the last boot ended with status %d", seen.status)
				}
			} else if seen.cut != string(step) {
				t.Fatalf("it did not come to the step %s (status %d, cut %q)", step, seen.status, seen.cut)
			}
		})
		if !passed {
			return // what comes after stands on this disk
		}
	}
}
