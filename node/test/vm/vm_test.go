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

// TestPodsWithVFs checks that every data flow is in hardware and that RoCE works between pods over two rails, and
// prints the cost of uncached flows. To run one part: go test -tags vm -run PodsWithVFs ./test/vm -args
// offload|rdma|figures
func TestPodsWithVFs(t *testing.T) { run(t, "TestVFs", flag.Arg(0), guestArguments()...) }

// TestAPowerCutInTheMiddleOfAddLeavesNothing cuts the machine's power at each step of ADD, or with -short at three
// steps: before the record is on disk, after the flows, and after the last step. Each boot checks what the previous one
// left on the disk and runs until the next cut.
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
					t.Fatalf("last boot ended with status %d", seen.status)
				}
			} else if seen.cut != string(step) {
				t.Fatalf("guest must reach the step %s, got status %d, cut %q", step, seen.status, seen.cut)
			}
		})
		if !passed {
			return // later steps depend on this disk
		}
	}
}
