// Package lab proves the pods' network on a whole fabric: rails, leaves and a spine with real FRR, nodes with real Open
// vSwitch and railwrightd as a process, pods attached by the chain of real plugins as a container runtime runs it.
package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

// programs that the lab runs.
type programs struct {
	tools  string // folder of cnitool and the plugins of others
	ours   string // folder of our plugins
	daemon string // railwrightd
}

// measuring says where records of the long form of the load go; empty: the short form, as CI runs it.
func measuring() string { return os.Getenv("RAILWRIGHT_MEASURE") }

// build everything once. What is measured is the daemon as it is shipped; else it is one that can be made to die.
var build = sync.OnceValues(func() (programs, error) {
	tools, err := exec.Command("../tools/build").Output()
	if err != nil {
		return programs{}, fmt.Errorf("test/tools/build: %w%s", err, standardError(err))
	}
	ours, err := os.MkdirTemp("", "rwt-lab-")
	if err != nil {
		return programs{}, err
	}
	made := programs{strings.TrimSpace(string(tools)), ours, filepath.Join(ours, "daemon", "railwrightd")}
	words := []string{"build", "-tags", "failpoints", "-o", made.daemon, "../../cmd/railwrightd"}
	if measuring() != "" {
		words = []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", made.daemon, "../../cmd/railwrightd"}
	}
	if told, err := exec.Command("go", words...).CombinedOutput(); err != nil {
		return made, fmt.Errorf("cmd/railwrightd: %w\n%s", err, told)
	}
	if told, err := exec.Command("../../cmd/railwright-cni/build", ours).CombinedOutput(); err != nil {
		return made, fmt.Errorf("cmd/railwright-cni/build: %w\n%s", err, told)
	}
	return made, nil
})

func standardError(err error) string {
	if exit, is := err.(*exec.ExitError); is {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made, err := build(); err == nil {
		_ = os.RemoveAll(made.ours)
	}
	os.Exit(code)
}

// shape of a fabric.
type shape struct {
	version testlab.FRRVersion
	backend frrconfig.Backend
	nodes   int
}

var (
	newFRR = shape{testlab.FRR10, frrconfig.KernelTable, 3}
	oldFRR = shape{testlab.FRR8, frrconfig.Vty, 2}
)

// atOnce does tasks beside each other; one that fails fails the test.
func atOnce(t testing.TB, tasks ...func()) {
	t.Helper()
	var group sync.WaitGroup
	for _, task := range tasks {
		group.Go(task)
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
